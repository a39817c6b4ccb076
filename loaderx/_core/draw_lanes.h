/* The draws of draw_iid.h and draw_cycle.h, many at a time. Included once for each kernel, by draw.h, which says what the
   macros LXD_... mean. */

#define LXD_NAME(what) LX_JOIN(what, LX_JOIN(_, LXD_KERNEL))

enum {
    LXD_NAME(LXD_HALVES) = 2 * LXD_LANES,   /* lanes of 32 bits */
    LXD_NAME(LXD_QUARTERS) = 4 * LXD_LANES  /* lanes of 16 bits */
};
#define LXD_HALVES LXD_NAME(LXD_HALVES)
#define LXD_QUARTERS LXD_NAME(LXD_QUARTERS)

/* Where there is no product of 64-bit lanes: from those of 32 bits. */
#ifndef LXD_MUL64
#define LXD_MUL64(a, b, b_high) LXD_ADD64(LXD_MUL32(a, b), \
        LXD_LEFT(LXD_ADD64(LXD_MUL32(LXD_RIGHT(a, 32), b), LXD_MUL32(a, b_high)), 32))
#endif

static int LXD_NAME(lx_draws)(void) { return LXD_WORKS; }

/* The counters of the words from `at` on. */
LXD_TARGET LX_INLINE LXD LXD_NAME(lx_counters)(lx_key key, uint64_t at) {
    uint64_t counters[LXD_LANES];
    int i;
    for (i = 0; i < LXD_LANES; i++)
        counters[i] = key.first + (at + (uint64_t)i) * LX_STEP;
    return LXD_LOAD(counters);
}

/* lx_word without its last step: the lower half is to be combined with the upper one. */
LXD_TARGET LX_INLINE LXD LXD_NAME(lx_words)(LXD z, LXD second) {
    z = LXD_XOR(z, LXD_RIGHT(z, 30));
    z = LXD_MUL64(z, LXD_SET64(LX_MULTIPLIER_1), LXD_SET64(LX_MULTIPLIER_1 >> 32));
    z = LXD_XOR3(z, LXD_RIGHT(z, 27), second);
    return LXD_MUL64(z, LXD_SET64(LX_MULTIPLIER_2), LXD_SET64(LX_MULTIPLIER_2 >> 32));
}

LXD_TARGET static void LXD_NAME(lx_iid_narrow)(uint64_t* out, size_t n, const lx_iid* iid, uint64_t at) {
    const LXD length = LXD_SET64(iid->length), least = LXD_SET64(iid->least_narrow);
    const LXD second = LXD_SET64(iid->key.second), step = LXD_SET64(LXD_LANES * LX_STEP);
    LXD counters;
    size_t i = 0, k;
    if (n && at & 1)
        out[i++] = lx_draw_narrow(iid, at);             /* the lanes begin with a whole word */
    counters = LXD_NAME(lx_counters)(iid->key, (at + i) >> 1);
    for (; i + LXD_HALVES <= n; i += LXD_HALVES) {
        const LXD words = LXD_NAME(lx_words)(counters, second), upper = LXD_RIGHT(words, 32);
        const LXD even = LXD_MUL32(LXD_XOR(words, upper), length), odd = LXD_MUL32(upper, length);
        LXD_STORE_HIGH(out + i, even, odd);
        if (LXD_ANY_BELOW(even, odd, least))
            for (k = i; k < i + LXD_HALVES; k++)
                out[k] = lx_draw_narrow(iid, at + k);
        counters = LXD_ADD64(counters, step);
    }
    for (; i < n; i++)
        out[i] = lx_draw_narrow(iid, at + i);
}

LXD_TARGET static void LXD_NAME(lx_iid_wide)(uint64_t* out, size_t n, const lx_iid* iid, uint64_t at) {
    const LXD lower = LXD_SET64(0xFFFFFFFF), least = LXD_SET64((iid->least >> 32) + 1);
    const LXD length = LXD_SET64(iid->length), length_upper = LXD_SET64(iid->length >> 32);
    const LXD second = LXD_SET64(iid->key.second), step = LXD_SET64(LXD_LANES * LX_STEP);
    LXD counters = LXD_NAME(lx_counters)(iid->key, at);
    size_t i, k;
    for (i = 0; i + LXD_LANES <= n; i += LXD_LANES) {
        const LXD words = LXD_NAME(lx_words)(counters, second), upper = LXD_RIGHT(words, 32);
        const LXD word = LXD_XOR(words, upper);
        const LXD middle = LXD_ADD64(LXD_MUL32(upper, length), LXD_RIGHT(LXD_MUL32(word, length), 32));
        const LXD other = LXD_ADD64(LXD_MUL32(word, length_upper), LXD_AND(middle, lower));
        const LXD index = LXD_ADD64(LXD_MUL32(upper, length_upper), LXD_RIGHT(middle, 32));
        LXD_STORE(out + i, LXD_ADD64(index, LXD_RIGHT(other, 32)));
        /* The upper half of the lower half is not above that of `least`: perhaps below it, to be looked at closely. */
        if (LXD_ANY_NEGATIVE(LXD_SUB64(LXD_AND(other, lower), least)))
            for (k = i; k < i + LXD_LANES; k++)
                out[k] = lx_draw_wide(iid, at + k);
        counters = LXD_ADD64(counters, step);
    }
    for (; i < n; i++)
        out[i] = lx_draw_wide(iid, at + i);
}

/* A product's halves on each other, and a key. */
LXD_TARGET LX_INLINE LXD LXD_NAME(lx_fold_narrow)(LXD x, uint32_t multiplier, LXD key) {
    return LXD_XOR3(LXD_LOW16(x, LXD_SET16(multiplier)), LXD_HIGH16(x, LXD_SET16(multiplier)), key);
}

LXD_TARGET LX_INLINE LXD LXD_NAME(lx_fold_wide)(LXD x, uint32_t multiplier, LXD key) {
    const LXD product = LXD_MUL32(x, LXD_SET64(multiplier));
    return LXD_XOR3(product, LXD_RIGHT(product, 32), key);
}

LXD_TARGET LX_INLINE LXD LXD_NAME(lx_moves_narrow)(LXD x, const LXD* keys, LXD limit) {
    x = LXD_NAME(lx_fold_narrow)(LXD_XOR(x, keys[0]), LX_FOLD16_1, keys[1]);
    x = LXD_NAME(lx_fold_narrow)(x, LX_FOLD16_2, keys[2]);
    return LXD_HIGH16(x, limit);
}

LXD_TARGET LX_INLINE LXD LXD_NAME(lx_moves_wide)(LXD x, const LXD* keys, LXD limit) {
    x = LXD_NAME(lx_fold_wide)(LXD_XOR(x, keys[0]), LX_FOLD32_1, keys[1]);
    x = LXD_NAME(lx_fold_wide)(x, LX_FOLD32_2, keys[2]);
    return LXD_RIGHT(LXD_MUL32(x, limit), 32);
}

/* Which place the number in a 16-bit lane is for: unpacking it twice puts numbers of several 128-bit lanes in a row. */
LXD_TARGET LX_INLINE LXD LXD_NAME(lx_places)(void) {
    uint16_t places[LXD_QUARTERS];
    int i;
    for (i = 0; i < LXD_QUARTERS; i++) {
        const int lane = i / 8, slot = i % 8;
        places[i] = (uint16_t)(slot / 2 * LXD_LANES + lane * 2 + slot % 2);
    }
    return LXD_LOAD(places);
}

/* The first number of a pair of 128-bit lanes comes from the lower halves of 32-bit lanes, the second from the upper. */
LXD_TARGET LX_INLINE void LXD_NAME(lx_store_halves)(uint64_t* out, LXD low, LXD high) {
    const LXD zero = LXD_SET64(0);
    LXD_STORE(out, LXD_ZIP_LOW32(low, zero));
    LXD_STORE(out + LXD_LANES, LXD_ZIP_HIGH32(low, zero));
    LXD_STORE(out + 2 * LXD_LANES, LXD_ZIP_LOW32(high, zero));
    LXD_STORE(out + 3 * LXD_LANES, LXD_ZIP_HIGH32(high, zero));
}

/* Columns that reach beyond their number are columns of the next row. */
LXD_TARGET LX_INLINE void LXD_NAME(lx_carry_narrow)(LXD* row, LXD* column, LXD n_columns) {
    const LXD less = LXD_SIGN16(LXD_SUB16(*column, n_columns));
    *row = LXD_ADD16(*row, LXD_ADD16(less, LXD_SET16(1)));
    *column = LXD_WRAP16(*column, n_columns);
}

LXD_TARGET static void LXD_NAME(lx_cycle_narrow)(uint64_t* out, size_t n, const lx_cycle* cycle, uint64_t at) {
    const uint64_t length = cycle->grid->length, columns = cycle->grid->columns;
    const LXD n_rows = LXD_SET16(cycle->grid->rows), n_columns = LXD_SET16(columns);
    const LXD rows_on = LXD_SET16(LXD_QUARTERS / columns), columns_on = LXD_SET16(LXD_QUARTERS % columns);
    const LXD last = LXD_SET32(length - 1), zero = LXD_SET64(0);
    LXD keys[3 * LX_ROUNDS], row = LXD_SET16(at / columns), column = LXD_SET16(at % columns);
    uint64_t rest[LXD_QUARTERS];
    size_t i, k;
    int round;
    for (k = 0; k < 3 * LX_ROUNDS; k++)
        keys[k] = LXD_SET16(cycle->keys[k / 3][k % 3]);
    column = LXD_ADD16(column, LXD_NAME(lx_places)());
    LXD_NAME(lx_carry_narrow)(&row, &column, n_columns);
    LXD_NAME(lx_carry_narrow)(&row, &column, n_columns);    /* there are at least 16 columns, and at most 32 lanes */
    for (i = 0; i < n; i += LXD_QUARTERS) {
        const size_t here = n - i < LXD_QUARTERS ? n - i : LXD_QUARTERS;
        uint64_t* to = here < LXD_QUARTERS ? rest : out + i;
        LXD x = row, y = column, low, high;
        for (round = 0; round < LX_ROUNDS; round += 2) {
            x = LXD_WRAP16(LXD_ADD16(x, LXD_NAME(lx_moves_narrow)(y, keys + 3 * round, n_rows)), n_rows);
            y = LXD_WRAP16(LXD_ADD16(y, LXD_NAME(lx_moves_narrow)(x, keys + 3 * round + 3, n_columns)), n_columns);
        }
        low = LXD_LOW16(x, n_columns);
        high = LXD_HIGH16(x, n_columns);
        x = LXD_ADD32(LXD_ZIP_LOW16(low, high), LXD_ZIP_LOW16(y, zero));
        y = LXD_ADD32(LXD_ZIP_HIGH16(low, high), LXD_ZIP_HIGH16(y, zero));
        LXD_NAME(lx_store_halves)(to, x, y);
        if (LXD_ANY_NEGATIVE32(LXD_OR(LXD_SUB32(last, x), LXD_SUB32(last, y))))
            for (k = 0; k < here; k++)
                if (to[k] >= length)
                    to[k] = lx_place_narrow(cycle, to[k]);
        if (to == rest)
            memcpy(out + i, rest, here * sizeof *out);
        row = LXD_ADD16(row, rows_on);
        column = LXD_ADD16(column, columns_on);
        LXD_NAME(lx_carry_narrow)(&row, &column, n_columns);
    }
}

LXD_TARGET LX_INLINE void LXD_NAME(lx_carry_wide)(LXD* row, LXD* column, LXD n_columns) {
    const LXD less = LXD_SIGN64(LXD_SUB64(*column, n_columns));
    *row = LXD_ADD64(*row, LXD_ADD64(less, LXD_SET64(1)));
    *column = LXD_WRAP64(*column, n_columns);
}

LXD_TARGET static void LXD_NAME(lx_cycle_wide)(uint64_t* out, size_t n, const lx_cycle* cycle, uint64_t at) {
    const uint64_t length = cycle->grid->length, columns = cycle->grid->columns;
    const LXD n_rows = LXD_SET64(cycle->grid->rows), n_columns = LXD_SET64(columns), last = LXD_SET64(length - 1);
    const LXD columns_on = LXD_SET64(LXD_LANES);
    LXD keys[3 * LX_ROUNDS], row = LXD_SET64(at / columns), column;
    uint64_t rest[LXD_LANES];
    size_t i, k;
    int round;
    for (k = 0; k < 3 * LX_ROUNDS; k++)
        keys[k] = LXD_SET64(cycle->keys[k / 3][k % 3]);
    for (k = 0; k < LXD_LANES; k++)
        rest[k] = at % columns + k;
    column = LXD_LOAD(rest);
    LXD_NAME(lx_carry_wide)(&row, &column, n_columns);
    for (i = 0; i < n; i += LXD_LANES) {
        const size_t here = n - i < LXD_LANES ? n - i : LXD_LANES;
        uint64_t* to = here < LXD_LANES ? rest : out + i;
        LXD x = row, y = column, number;
        for (round = 0; round < LX_ROUNDS; round += 2) {
            x = LXD_WRAP64(LXD_ADD64(x, LXD_NAME(lx_moves_wide)(y, keys + 3 * round, n_rows)), n_rows);
            y = LXD_WRAP64(LXD_ADD64(y, LXD_NAME(lx_moves_wide)(x, keys + 3 * round + 3, n_columns)), n_columns);
        }
        number = LXD_ADD64(LXD_MUL32(x, n_columns), y);
        LXD_STORE(to, number);
        if (LXD_ANY_NEGATIVE(LXD_SUB64(last, number)))
            for (k = 0; k < here; k++)
                if (to[k] >= length)
                    to[k] = lx_place_wide(cycle, to[k]);
        if (to == rest)
            memcpy(out + i, rest, here * sizeof *out);
        column = LXD_ADD64(column, columns_on);
        LXD_NAME(lx_carry_wide)(&row, &column, n_columns);
    }
}

#undef LXD_KERNEL
#undef LXD_TARGET
#undef LXD_WORKS
#undef LXD
#undef LXD_LANES
#undef LXD_LOAD
#undef LXD_STORE
#undef LXD_SET64
#undef LXD_SET32
#undef LXD_SET16
#undef LXD_ADD64
#undef LXD_SUB64
#undef LXD_ADD32
#undef LXD_ADD16
#undef LXD_SUB16
#undef LXD_AND
#undef LXD_XOR
#undef LXD_XOR3
#undef LXD_RIGHT
#undef LXD_LEFT
#undef LXD_MUL32
#undef LXD_LOW16
#undef LXD_HIGH16
#undef LXD_WRAP16
#undef LXD_WRAP64
#undef LXD_ZIP_LOW16
#undef LXD_ZIP_HIGH16
#undef LXD_ZIP_LOW32
#undef LXD_ZIP_HIGH32
#undef LXD_ANY_NEGATIVE
#undef LXD_ANY_NEGATIVE32
#undef LXD_ANY_BELOW
#undef LXD_OR
#undef LXD_STORE_HIGH
#undef LXD_MUL64
#undef LXD_NAME
#undef LXD_HALVES
#undef LXD_QUARTERS
#undef LXD_SUB32
#undef LXD_SIGN16
#undef LXD_SIGN64
