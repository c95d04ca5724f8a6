/* SPDX-License-Identifier: Apache-2.0 */
/* The error codes of CUDA, cuBLAS, cuDNN and NCCL, as rows of cuda_errors.def: found by number, by name or by the text
 * that the libraries print.  Says which of them lose the device context.  A number alone is never trusted over a text:
 * CUDA before 10.1 had other numbers. */
#ifndef BL_TRIAGE_CUDA_ERRORS_H
#define BL_TRIAGE_CUDA_ERRORS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum bl_cuda_domain {
    BL_CUDA_DOMAIN_CUDA,
    BL_CUDA_DOMAIN_CUBLAS,
    BL_CUDA_DOMAIN_CUDNN,
    BL_CUDA_DOMAIN_NCCL,
    BL_N_CUDA_DOMAINS
} bl_cuda_domain;

typedef enum bl_cuda_survives {
    BL_CUDA_SURVIVES_YES,  /* usable after clearing, or there was no context yet */
    BL_CUDA_SURVIVES_NO,   /* end the process */
    BL_CUDA_SURVIVES_PROBE /* maybe an echo: synchronise under a watchdog, then decide */
} bl_cuda_survives;

typedef struct bl_cuda_error {
    int code;
    bl_cuda_domain domain;
    const char *symbol;        /* "cudaErrorIllegalAddress", "CUBLAS_STATUS_..."; "": the number has no name here */
    const char *driver_symbol; /* "CUDA_ERROR_ILLEGAL_ADDRESS", "" for none */
    bl_cuda_survives survives;
    const char *text; /* as the library prints it, "" when it prints the symbol */
    const char *meaning;
    const char *causes; /* the usual ones, "" for none */
    const char *action;
} bl_cuda_error;

enum { BL_N_CUDA_ERRORS = 205 };

/* All rows: 0 .. BL_N_CUDA_ERRORS - 1, by domain, then ascending by code. */
const bl_cuda_error *bl_cuda_error_at(int i);

/* NULL for a number that is in no row. */
const bl_cuda_error *bl_cuda_error_find(bl_cuda_domain domain, int64_t code);

/* By the runtime's or the driver's name, the whole of it; NULL for none. */
const bl_cuda_error *bl_cuda_error_find_symbol(const char *symbol, int64_t n_bytes);

/* By what follows an "error: " in a log: the text begins with the longest printed form of an error that ends at a word's
 * end ("an illegal memory access was encountered (error 700)" gives 700), or with a symbol.  Texts of older CUDA
 * versions are known too.  NULL for none.  *n_taken, when wanted: the bytes of that form. */
const bl_cuda_error *bl_cuda_error_find_text(const char *text, int64_t n_bytes, int64_t *n_taken);

/* The first symbol or printed text anywhere in a line, the longest of those that begin there.  Texts that are ordinary
 * words ("no error", "invalid argument", "file not found") are passed over.  *at, when wanted: where it begins. */
const bl_cuda_error *bl_cuda_error_search(const char *line, int64_t n_bytes, int64_t *at);

/* Today's code of a runtime error as CUDA before 10.1 numbered it (77 -> 700), -1 when that number did not change or
 * never was. */
int bl_cuda_error_modern(int64_t old_code);

typedef struct bl_cuda_reading {
    const bl_cuda_error *row;   /* NULL: neither text nor number say anything */
    const bl_cuda_error *other; /* the number's other reading, when there is no text to decide; else NULL */
    bool is_old_number;         /* the number is that of CUDA before 10.1 */
} bl_cuda_reading;

/* A runtime error given as number and text, either of which may be missing (code < 0, n_text 0): the text decides. */
bl_cuda_reading bl_cuda_error_read(int64_t code, const char *text, int64_t n_text);

#endif
