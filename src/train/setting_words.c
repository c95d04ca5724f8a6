/* SPDX-License-Identifier: Apache-2.0 */
/* A setting's default and limits in words, and its value as the text that sets it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/setting_rows.h"

/* Whole numbers as such, else the shortest digits that read back as the same number. */
static void add_real(double value, bl_text *out)
{
    char digits[40];
    if (value >= -1e6 && value <= 1e6 && value == (double)(int64_t)value) {
        bl_text_format(out, "%" PRId64, (int64_t)value);
        return;
    }
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    bl_text_add(out, digits);
}

static void add_choices(const bl_setting_row *row, const char *between, const char *last, bl_text *out)
{
    for (int i = 0; row->choices[i] != NULL; i++)
        bl_text_format(out, "%s%s", i == 0 ? "" : row->choices[i + 1] == NULL ? last : between, row->choices[i]);
}

static void add_pairs(const bl_pairs *pairs, bl_text *out)
{
    for (int64_t i = 0; i < pairs->n; i++)
        bl_text_format(out, "%s%" PRId64 ":%" PRId64, i > 0 ? " " : "", pairs->pair[i].epoch, pairs->pair[i].position);
    if (pairs->n == 0)
        bl_text_add(out, "none");
}

static void add_int(const bl_setting_row *row, int64_t value, bl_text *out)
{
    if (value < row->int_low)
        bl_text_add(out, row->words);
    else
        bl_text_format(out, "%" PRId64, value);
}

void bl_setting_value_describe(const void *object, const bl_setting_row *row, bl_text *out)
{
    const void *field = (const char *)object + row->offset;
    const char *text;
    switch (row->kind) {
    case BL_KIND_INT:
        add_int(row, *(const int64_t *)field, out);
        break;
    case BL_KIND_REAL:
        add_real(*(const double *)field, out);
        break;
    case BL_KIND_CHOICE:
        bl_text_add(out, row->choices[*(const int *)field]);
        break;
    case BL_KIND_TEXT:
        text = *(char *const *)field != NULL ? *(char *const *)field : "none";
        bl_text_add_escaped(out, text, (int64_t)strlen(text), INT64_MAX);
        break;
    case BL_KIND_PAIRS:
        add_pairs(field, out);
        break;
    case BL_KIND_FLAG:
        bl_text_add(out, *(const bool *)field ? "on" : "off");
        break;
    }
}

void bl_setting_place_describe(const bl_setting_row *row, bl_text *out)
{
    if (row->kind == BL_KIND_CHOICE)
        add_choices(row, "|", "|", out);
    else
        bl_text_add(out, row->place);
}

void bl_setting_default_describe(const bl_setting_row *row, bl_text *out)
{
    if (row->words[0] != '\0')
        bl_text_add(out, row->words);
    else if (row->kind == BL_KIND_INT)
        bl_text_format(out, "%" PRId64, row->int_default);
    else if (row->kind == BL_KIND_REAL)
        add_real(row->real_default, out);
    else if (row->kind == BL_KIND_CHOICE)
        bl_text_add(out, row->choices[row->int_default]);
    else if (row->text_default != NULL)
        bl_text_add(out, row->text_default);
}

static void describe_int(const bl_setting_row *row, bl_text *out)
{
    bl_text_format(out, "a whole number from %" PRId64 " to %" PRId64, row->int_low, row->int_high);
}

static void describe_real(const bl_setting_row *row, bl_text *out)
{
    bl_text_add(out, row->open == BL_OPEN_LOW ? "a number above " : "a number from ");
    add_real(row->real_low, out);
    bl_text_add(out, row->open == BL_OPEN_LOW ? " and at most " : row->open == BL_OPEN_HIGH ? " to below " : " to ");
    add_real(row->real_high, out);
}

void bl_setting_limits_describe(const bl_setting_row *row, bl_text *out)
{
    switch (row->kind) {
    case BL_KIND_INT:
        describe_int(row, out);
        break;
    case BL_KIND_REAL:
        describe_real(row, out);
        break;
    case BL_KIND_CHOICE:
        add_choices(row, ", ", " or ", out);
        break;
    case BL_KIND_TEXT:
        bl_text_add(out, "a text that is not empty");
        break;
    case BL_KIND_PAIRS:
        bl_text_add(out, "an epoch and a batch, both from 0 to 4294967295, as in 0:12");
        break;
    case BL_KIND_FLAG:
        bl_text_add(out, "on or off");
        break;
    }
}
