/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix products of the reference job alone: the bound that the job is measured against. */
#ifndef BL_CLI_BENCH_PRODUCTS_H
#define BL_CLI_BENCH_PRODUCTS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bl_products bl_products;

/* Finds for each product of a micro-batch the fastest of the layouts and cuts known, by trying them; NULL without
 * memory. A layout is: which factors are stored transposed; a cut is: along rows or columns, over `threads` threads. */
bl_products *bl_products_new(int threads);
void bl_products_free(bl_products *products);

/* Runs all products of one micro-batch once, each in its fastest form. */
void bl_products_run(bl_products *products);

/* Floating-point operations of one micro-batch's products: 2 M N K each. */
double bl_products_flop(const bl_products *products);

/* Seconds of one 2048 x 2048 x 2048 product on all threads, the fastest of `tries`. */
double bl_products_square(int threads, int tries);

#endif
