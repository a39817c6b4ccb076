/* A kernel of xxh3.h, which includes this once for each instruction set, with the LXV macros set; they end here.

   The specification adds the input to the neighbour of the lane that gets its product. All are sums, so with LXV_APART
   inputs and products have sums of their own, and the three are brought together where a block ends: one exchange a
   block instead of one a stripe, and no stripe waits for the scrambling of the block before. It takes three times the
   registers. */

#define LXV_NAME(prefix) LX_JOIN(prefix, LXV_KERNEL)
#define LXV_N ((int)(LX_STRIPE / sizeof(LXV)))
#define LXV_AT(base, v) ((base) + (v) * (int)sizeof(LXV))

typedef struct {
    LXV lanes[LX_STRIPE / sizeof(LXV)];
    LXV inputs[LX_STRIPE / sizeof(LXV)];
    LXV products[LX_STRIPE / sizeof(LXV)];
} LXV_NAME(lx_state_);

LXV_TARGET LX_INLINE void LXV_NAME(lx_begin_)(LXV_NAME(lx_state_)* state) {
    int v;
    #pragma GCC unroll 4
    for (v = 0; v < LXV_N; v++) {
        state->lanes[v] = LXV_LOAD(LXV_AT((const uint8_t*)lx_first_lanes, v));
        state->inputs[v] = LXV_SET(0);
        state->products[v] = LXV_SET(0);
    }
}

/* Take one stripe, and store it in dst where it is to be copied. */
LXV_TARGET LX_INLINE void LXV_NAME(lx_stripe_)(
    LXV_NAME(lx_state_)* state, int copies, uint8_t* dst, const uint8_t* src, const uint8_t* key
) {
    int v;
    #pragma GCC unroll 4
    for (v = 0; v < LXV_N; v++) {
        LXV input = LXV_LOAD(LXV_AT(src, v)), keyed;
        LXV_PIN(input);
        if (copies)
            LXV_STORE(LXV_AT(dst, v), input);
        keyed = LXV_XOR(input, LXV_LOAD(LXV_AT(key, v)));
        if (LXV_APART) {
            state->inputs[v] = LXV_ADD(state->inputs[v], input);
            state->products[v] = LXV_ADD(state->products[v], LXV_MULTIPLY(keyed, LXV_RIGHT(keyed, 32)));
            LXV_PIN(state->inputs[v]);
            LXV_PIN(state->products[v]);
        } else {
            keyed = LXV_ADD(LXV_SWAP(input), LXV_MULTIPLY(keyed, LXV_RIGHT(keyed, 32)));
            state->lanes[v] = LXV_ADD(state->lanes[v], keyed);
            LXV_PIN(state->lanes[v]);
        }
    }
}

LXV_TARGET LX_INLINE void LXV_NAME(lx_join_)(LXV_NAME(lx_state_)* state) {
    int v;
    #pragma GCC unroll 4
    for (v = 0; v < LXV_N; v++) {
        state->lanes[v] = LXV_ADD(state->lanes[v], LXV_ADD(state->products[v], LXV_SWAP(state->inputs[v])));
        state->inputs[v] = LXV_SET(0);
        state->products[v] = LXV_SET(0);
    }
}

LXV_TARGET LX_INLINE void LXV_NAME(lx_scramble_)(LXV_NAME(lx_state_)* state) {
    const LXV prime = LXV_SET(LX_PRIME32_1);
    int v;
    #pragma GCC unroll 4
    for (v = 0; v < LXV_N; v++) {
        LXV lane = LXV_XOR(state->lanes[v], LXV_RIGHT(state->lanes[v], 47));
        lane = LXV_XOR(lane, LXV_LOAD(LXV_AT(lx_secret + LX_SCRAMBLE_KEY, v)));
        /* The prime has 32 bits, so two products of 32 bits make the one of 64. */
        state->lanes[v] =
            LXV_ADD(LXV_MULTIPLY(lane, prime), LXV_LEFT(LXV_MULTIPLY(LXV_RIGHT(lane, 32), prime), 32));
    }
}

/* n > LX_SHORT. Each caller gives a constant for `copies`, and so has this without the tests of it. */
LXV_TARGET LX_INLINE uint64_t LXV_NAME(lx_long_)(int copies, uint8_t* dst, const uint8_t* src, size_t n) {
    LXV_NAME(lx_state_) state;
    LX_ALIGNED uint64_t lanes[LX_LANES];
    /* Whole stripes as long as a byte comes after, and then the last 64 bytes, whichever of them were taken already. */
    const size_t n_stripes = (n - 1) / LX_STRIPE;
    size_t at = 0, block, s;
    int v;
    LXV_NAME(lx_begin_)(&state);
    for (block = 0; block < n_stripes / LX_BLOCK_STRIPES; block++) {
        #pragma GCC unroll 16
        for (s = 0; s < LX_BLOCK_STRIPES; s++, at += LX_STRIPE)
            LXV_NAME(lx_stripe_)(&state, copies, copies ? dst + at : NULL, src + at, lx_secret + s * LX_KEY_STEP);
        LXV_NAME(lx_join_)(&state);
        LXV_NAME(lx_scramble_)(&state);
    }
    for (s = 0; s < n_stripes % LX_BLOCK_STRIPES; s++, at += LX_STRIPE)
        LXV_NAME(lx_stripe_)(&state, copies, copies ? dst + at : NULL, src + at, lx_secret + s * LX_KEY_STEP);
    at = n - LX_STRIPE;
    LXV_NAME(lx_stripe_)(&state, copies, copies ? dst + at : NULL, src + at, lx_secret + LX_LAST_KEY);
    LXV_NAME(lx_join_)(&state);
    #pragma GCC unroll 4
    for (v = 0; v < LXV_N; v++)
        LXV_STORE(LXV_AT((uint8_t*)lanes, v), state.lanes[v]);
    return lx_merge(lanes, n);
}

LXV_TARGET static uint64_t LXV_NAME(lx_hash_)(const uint8_t* src, size_t n) {
    return LXV_NAME(lx_long_)(0, NULL, src, n);
}

LXV_TARGET static uint64_t LXV_NAME(lx_copy_)(uint8_t* dst, const uint8_t* src, size_t n) {
    return LXV_NAME(lx_long_)(1, dst, src, n);
}

static int LXV_NAME(lx_works_)(void) { return LXV_WORKS; }

#undef LXV_NAME
#undef LXV_N
#undef LXV_AT
#undef LXV_KERNEL
#undef LXV_TARGET
#undef LXV_WORKS
#undef LXV
#undef LXV_PIN
#undef LXV_APART
#undef LXV_LOAD
#undef LXV_STORE
#undef LXV_SET
#undef LXV_ADD
#undef LXV_XOR
#undef LXV_RIGHT
#undef LXV_LEFT
#undef LXV_MULTIPLY
#undef LXV_SWAP
