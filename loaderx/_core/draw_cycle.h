/* A permutation of the numbers below a length, place by place, from a key.

   Short ones are shuffled (Fisher and Yates). Long ones go through a Feistel network on a grid of `rows` x `columns`,
   which is little larger than the length: a number is row and column, and each round moves one of them by a hash of the
   other (J. Black and P. Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). What comes out beyond the length goes
   through again, until it does not. */

#ifndef LOADERX_DRAW_CYCLE_H
#define LOADERX_DRAW_CYCLE_H

#include "draw_iid.h"

enum {
    LX_SHUFFLED_LENGTH = 256,   /* up to this length a cycle is shuffled */
    LX_SHORT_LENGTH = 65536,    /* up to this one it gets more rounds: the smaller the grid, the less does one mix */
    LX_SHORT_ROUNDS = 12,
    LX_ROUNDS = 8
};

/* Odd, their bits without a pattern. */
#define LX_FOLD16_1 0x9E3Bu
#define LX_FOLD16_2 0x85EDu
#define LX_FOLD32_1 0x9E3779B1u
#define LX_FOLD32_2 0x85EBCA77u

typedef struct {
    uint64_t length;
    uint64_t rows, columns;     /* rows * columns is at least the length, and less than the length and rows */
    int n_rounds;               /* even */
} lx_grid;

typedef struct {
    const lx_grid* grid;
    uint32_t keys[LX_SHORT_ROUNDS][3];
} lx_cycle;

static void lx_set_grid(lx_grid* grid, uint64_t length) {
    uint64_t root = 0, bit;
    for (bit = (uint64_t)1 << 31; bit; bit >>= 1)       /* the largest whose square is below the length */
        if ((root + bit) * (root + bit) < length)
            root += bit;
    grid->length = length;
    grid->rows = root + 1;
    grid->n_rounds = length <= LX_SHORT_LENGTH ? LX_SHORT_ROUNDS : LX_ROUNDS;
    grid->columns = length / grid->rows + (length % grid->rows != 0);
}

static void lx_set_cycle_narrow(lx_cycle* cycle, const lx_grid* grid, lx_key key) {
    int i;
    cycle->grid = grid;
    for (i = 0; i < grid->n_rounds; i++) {
        const uint64_t word = lx_word(key, (uint64_t)i);
        cycle->keys[i][0] = (uint16_t)word;
        cycle->keys[i][1] = (uint16_t)(word >> 16);
        cycle->keys[i][2] = (uint16_t)(word >> 32);
    }
}

static void lx_set_cycle_wide(lx_cycle* cycle, const lx_grid* grid, lx_key key) {
    int i;
    cycle->grid = grid;
    for (i = 0; i < grid->n_rounds; i++) {
        const uint64_t word = lx_word(key, 2 * (uint64_t)i);
        cycle->keys[i][0] = (uint32_t)word;
        cycle->keys[i][1] = (uint32_t)(word >> 32);
        cycle->keys[i][2] = (uint32_t)lx_word(key, 2 * (uint64_t)i + 1);
    }
}

/* By how much a round moves a row or a column: below `limit`. A product's halves are put on each other. */
LX_INLINE uint32_t lx_move_narrow(uint32_t x, const uint32_t* key, uint32_t limit) {
    uint32_t product = (x ^ key[0]) * LX_FOLD16_1;
    product = (((product ^ product >> 16) & 0xFFFF) ^ key[1]) * LX_FOLD16_2;
    return (((product ^ product >> 16) & 0xFFFF) ^ key[2]) * limit >> 16;
}

LX_INLINE uint64_t lx_move_wide(uint64_t x, const uint32_t* key, uint64_t limit) {
    uint64_t product = (x ^ key[0]) * LX_FOLD32_1;
    product = (uint64_t)((uint32_t)(product ^ product >> 32) ^ key[1]) * LX_FOLD32_2;
    return (uint64_t)((uint32_t)(product ^ product >> 32) ^ key[2]) * limit >> 32;
}

LX_INLINE uint64_t lx_wrap(uint64_t x, uint64_t limit) { return x < limit ? x : x - limit; }

LX_INLINE uint64_t lx_pass_narrow(const lx_cycle* cycle, uint64_t number) {
    const uint64_t rows = cycle->grid->rows, columns = cycle->grid->columns;
    uint64_t row = number / columns, column = number % columns;
    int i;
    for (i = 0; i < cycle->grid->n_rounds; i += 2) {
        row = lx_wrap(row + lx_move_narrow((uint32_t)column, cycle->keys[i], (uint32_t)rows), rows);
        column = lx_wrap(column + lx_move_narrow((uint32_t)row, cycle->keys[i + 1], (uint32_t)columns), columns);
    }
    return row * columns + column;
}

LX_INLINE uint64_t lx_pass_wide(const lx_cycle* cycle, uint64_t number) {
    const uint64_t rows = cycle->grid->rows, columns = cycle->grid->columns;
    uint64_t row = number / columns, column = number % columns;
    int i;
    for (i = 0; i < cycle->grid->n_rounds; i += 2) {
        row = lx_wrap(row + lx_move_wide(column, cycle->keys[i], rows), rows);
        column = lx_wrap(column + lx_move_wide(row, cycle->keys[i + 1], columns), columns);
    }
    return row * columns + column;
}

/* What stands at a place of a cycle; `number` may also be what came out of a first pass, beyond the length. */
static uint64_t lx_place_narrow(const lx_cycle* cycle, uint64_t number) {
    do
        number = lx_pass_narrow(cycle, number);
    while (number >= cycle->grid->length);
    return number;
}

static uint64_t lx_place_wide(const lx_cycle* cycle, uint64_t number) {
    do
        number = lx_pass_wide(cycle, number);
    while (number >= cycle->grid->length);
    return number;
}

/* n places from `at` on of a cycle of at most LX_SHUFFLED_LENGTH. The places before them have to be drawn, too. */
static void lx_shuffle_cycle(uint64_t* out, size_t n, lx_key key, size_t length, size_t at) {
    uint8_t numbers[LX_SHUFFLED_LENGTH], number;
    size_t i;
    for (i = 0; i < length; i++)
        numbers[i] = (uint8_t)i;
    for (i = 0; i < at + n; i++) {
        const uint64_t left = length - i;
        uint64_t low, j = lx_multiply(lx_word(key, i), left, &low);
        if (low < left)                                 /* seldom: only then `least` is worth a division */
            j = lx_draw_from(key, left, (0 - left) % left, i, 0);
        number = numbers[i + j];
        numbers[i + j] = numbers[i];
        if (i >= at)
            out[i - at] = number;
    }
}

#endif
