/* SPDX-License-Identifier: Apache-2.0 */
#include "report/reason.h"

#include "base/attributes.h"

/* ---- what rows ask of a value ------------------------------------------------------------------------------------- */

static bool is_near(int64_t v, int64_t place) { return v >= place - 1024 && v <= place + 1024; }

/* One that a person would write: normal, between 2^-20 and 2^24 in size, with few digits. */
static bool is_round_f32(uint32_t bits)
{
    int exponent = (int)(bits >> 23 & 0xff) - 127;
    return exponent >= -20 && exponent <= 24 && (bits & 0xfff) == 0;
}

static bool is_round_f64(uint64_t bits)
{
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    return exponent >= -20 && exponent <= 24 && (bits & 0xffffffff) == 0;
}

static bool is_float_bits(int64_t v)
{
    uint64_t bits = (uint64_t)v;
    if (v >= INT32_MIN && v <= (int64_t)UINT32_MAX)
        return is_round_f32((uint32_t)bits);
    return is_round_f64(bits) || (is_round_f32((uint32_t)bits) && is_round_f32((uint32_t)(bits >> 32)));
}

/* With a larger bound than values of 32 bits have, half of everything would be that. */
static bool has_valid_halves(int64_t v, int64_t n)
{
    return n <= INT32_MAX && v > UINT32_MAX && v >> 32 < n && (v & UINT32_MAX) < n;
}

static bool is_text(int64_t v)
{
    for (int i = 0; i < 8; i++) {
        uint64_t byte = (uint64_t)v >> 8 * i & 0xff;
        if (byte < 0x20 || byte > 0x7e)
            return false;
    }
    return true;
}

/* ---- rows --------------------------------------------------------------------------------------------------------- */

#define BL_REASON(NAME, what, test, likely, advice, value, bound, dtype)                                               \
    static bool holds_##NAME(int64_t v, int64_t n, belay_dtype t)                                                      \
    {                                                                                                                  \
        (void)v, (void)n, (void)t;                                                                                     \
        return test;                                                                                                   \
    }
#include "report/reasons.def"
#undef BL_REASON

enum { IDS = 1, LABELS = 2, ANY = IDS | LABELS };

static const bl_report_reason rows[] = {
#define BL_REASON(NAME, what, test, likely, advice, value, bound, dtype)                                               \
    {#NAME, likely, advice, (what & IDS) != 0, (what & LABELS) != 0, holds_##NAME, value, bound, BELAY_##dtype},
#include "report/reasons.def"
#undef BL_REASON
};

const bl_report_reason *bl_report_reason_find(const bl_report_fault *f)
{
    bool is_label = f->code == BELAY_INDEX_LABEL;
    bool is_id = f->code == BELAY_INDEX_RANGE || f->code == BELAY_INDEX_CLAMPED || f->code == BELAY_INDEX_ZEROED;
    if ((!is_id && !is_label) || f->operand < 0 || f->element < 0 || f->n_items > 0)
        return NULL;
    for (int i = 0; i < BL_COUNT(rows); i++)
        if ((is_label ? rows[i].is_for_labels : rows[i].is_for_ids) &&
            rows[i].holds(f->got, f->limit, f->tensor[f->operand].dtype))
            return &rows[i];
    return NULL;
}

const bl_report_reason *bl_report_reason_row(int number)
{
    return number >= 0 && number < BL_COUNT(rows) ? &rows[number] : NULL;
}
