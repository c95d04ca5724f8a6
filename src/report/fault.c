/* SPDX-License-Identifier: Apache-2.0 */
#include "report/fault.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void bl_report_fault_init(bl_report_fault *fault, belay_code code)
{
    memset(fault, 0, sizeof *fault);
    fault->code = code;
    fault->operand = -1;
    fault->table = -1;
    fault->element = -1;
    fault->sample_row = -1;
}

void bl_report_fault_begin(bl_report_fault *fault, belay_code code, const char *format, va_list args)
{
    bl_report_fault_init(fault, code);
    vsnprintf(fault->what, sizeof fault->what, format, args);
}

void bl_report_fault_fact(bl_report_fault *fault, const char *format, ...)
{
    size_t used = strlen(fault->facts), room = sizeof fault->facts - used;
    if (room < 8)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(fault->facts + used, room - 1, format, args); /* one byte for the newline */
    va_end(args);
    size_t end = strlen(fault->facts);
    fault->facts[end] = '\n';
    fault->facts[end + 1] = '\0';
}

void bl_report_shape(const belay_shape *shape, bl_text *out)
{
    bl_text_add(out, "[");
    for (int i = 0; i < shape->rank; i++)
        bl_text_format(out, i > 0 ? ", %" PRId64 : "%" PRId64, shape->size[i]);
    bl_text_add(out, "]");
}

void bl_report_coordinates(const belay_shape *shape, int64_t element, bl_text *out)
{
    belay_shape at = *shape;
    for (int i = shape->rank - 1; i >= 0; i--) {
        at.size[i] = shape->size[i] > 0 ? element % shape->size[i] : 0;
        element = shape->size[i] > 0 ? element / shape->size[i] : 0;
    }
    bl_report_shape(&at, out);
}

static const char *name_of(const bl_report_tensor *t) { return t->name[0] != '\0' ? t->name : t->role; }

/* Names and texts may come from files. */
static void add_safe(bl_text *out, const char *text)
{
    int64_t n = (int64_t)strlen(text);
    bl_text_add_escaped(out, text, n, n);
}

static int64_t n_elements(const belay_shape *shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++)
        n *= shape->size[i];
    return n;
}

/* "tokens[3, 17] is 10007, outside [0, 10000)" */
static void describe_element(const bl_report_fault *f, bl_text *out)
{
    const bl_report_tensor *t = &f->tensor[f->operand];
    add_safe(out, name_of(t));
    bl_report_coordinates(&t->shape, f->element, out);
    bl_text_format(out, " is %" PRId64 ", outside [0, %" PRId64 ")", f->got, f->limit);
    if (f->table >= 0) {
        bl_text_add(out, " of ");
        add_safe(out, name_of(&f->tensor[f->table]));
    }
}

static void describe_what(const bl_report_fault *f, bl_text *out)
{
    if (f->what[0] != '\0')
        add_safe(out, f->what);
    else if (f->operand >= 0 && f->element >= 0)
        describe_element(f, out);
    else
        bl_text_add(out, belay_code_why(f->code));
}

static const char *device_of(const bl_report_fault *f, const bl_report_tensor *t)
{
    return t->device[0] != '\0' ? t->device : f->device;
}

static bool is_on_several_devices(const bl_report_fault *f)
{
    const char *first = NULL;
    for (int i = 0; i < f->n_tensors; i++) {
        if (f->tensor[i].is_absent)
            continue;
        if (first != NULL && strcmp(first, device_of(f, &f->tensor[i])) != 0)
            return true;
        first = device_of(f, &f->tensor[i]);
    }
    return false;
}

/* Where all lie on one device it stands once, at the end. */
static void describe_tensors(const bl_report_fault *f, bl_text *out)
{
    bool several = is_on_several_devices(f);
    const char *device = f->device;
    int n_told = 0;
    for (int i = 0; i < f->n_tensors; i++) {
        const bl_report_tensor *t = &f->tensor[i];
        if (t->is_absent)
            continue;
        device = device_of(f, t);
        bl_text_add(out, n_told++ == 0 ? "    tensors: " : "; ");
        add_safe(out, name_of(t));
        bl_text_add(out, " ");
        bl_report_shape(&t->shape, out);
        bl_text_format(out, " %s", belay_dtype_name(t->dtype));
        if (several)
            bl_text_format(out, " on %s", device);
        if (t->is_output)
            bl_text_add(out, " (output)");
    }
    if (n_told > 0 && !several)
        bl_text_format(out, "; on %s", device);
    if (n_told > 0)
        bl_text_add(out, "\n");
}

static void describe_values(const bl_report_fault *f, bl_text *out)
{
    if (f->count == 0 || f->operand < 0)
        return;
    bl_text_format(out, "    bad: %" PRIu64 " of %" PRId64 " elements", f->count,
                   n_elements(&f->tensor[f->operand].shape));
    for (int i = 0; i < f->n_values; i++)
        bl_text_format(out, "%s%" PRId64, i == 0 ? "; values " : ", ", f->value[i]);
    bl_text_add(out, "\n");
}

static void describe_position(const bl_report_fault *f, bl_text *out)
{
    if (f->sample[0] != '\0') {
        bl_text_add(out, "    sample: ");
        add_safe(out, f->sample);
        if (f->sample_row >= 0)
            bl_text_format(out, " (row %" PRId64 " of the batch)", f->sample_row);
        bl_text_add(out, "\n");
    }
    if (f->has_position)
        bl_text_format(out,
                       "    when: epoch %" PRIu32 ", batch %" PRIu32 " (micro-batch %" PRIu32
                       " of its window), step %" PRIu64 ", rank %d\n",
                       f->epoch, f->position, f->micro_batch, f->step, f->rank);
}

/* What the value itself says about the cause. */
static const char *hint_of(const bl_report_fault *f)
{
    if (f->operand < 0 || f->element < 0 || f->code == BELAY_NUM_CAST)
        return NULL;
    if (f->got == f->limit && f->code == BELAY_INDEX_LABEL)
        return "the value equals the bound: labels may be counted from 1";
    if (f->got == f->limit)
        return "the value equals the bound: off by one, or a padding id of its own that the table has no row for";
    if (f->got < 0)
        return "a negative value: an ignore value, or an unsigned number that wrapped";
    if (f->got > INT32_MAX)
        return "a huge value: memory that was never filled, or a float that was cast";
    return NULL;
}

static void add_lines(bl_text *out, const char *lines)
{
    while (*lines != '\0') {
        size_t length = strcspn(lines, "\n");
        bl_text_add(out, "    ");
        bl_text_add_escaped(out, lines, (int64_t)length, (int64_t)length);
        bl_text_add(out, "\n");
        lines += length + (lines[length] == '\n');
    }
}

/* The default stream is named only beside another. */
static void add_stream(bl_text *out, const char *stream, bool is_named)
{
    if (stream[0] != '\0') {
        bl_text_add(out, " on stream ");
        add_safe(out, stream);
    } else if (is_named) {
        bl_text_add(out, " on the default stream");
    }
}

/* Which launch, where that says something: it ran beside others, or was learned of later. */
static void describe_launch(const bl_report_fault *f, bl_text *out)
{
    bool is_other = f->other_site[0] != '\0' && f->other_stream[0] != '\0';
    if (f->launch != 0 && (f->stream[0] != '\0' || f->surfaced[0] != '\0'))
        bl_text_format(out, ", launch %" PRIu64, f->launch);
    add_stream(out, f->stream, is_other);
}

static void describe_call(const bl_report_fault *f, bl_text *out)
{
    if (f->op[0] == '\0' && f->site[0] == '\0')
        return;
    if (f->op[0] != '\0')
        bl_text_format(out, "    op: %s%s", f->op, f->is_backward ? " (backward)" : "");
    if (f->op[0] != '\0' && f->layer[0] != '\0') {
        bl_text_add(out, " in layer ");
        add_safe(out, f->layer);
    }
    if (f->site[0] != '\0') {
        bl_text_add(out, f->op[0] != '\0' ? ", called at " : "    called at: ");
        add_safe(out, f->site);
    }
    describe_launch(f, out);
    bl_text_add(out, "\n");
}

/* The other places that have to do with it. */
static void describe_others(const bl_report_fault *f, bl_text *out)
{
    if (f->other_site[0] != '\0') {
        bl_text_format(out, "    %s: ", f->other_words[0] != '\0' ? f->other_words : "other use at");
        add_safe(out, f->other_site);
        add_stream(out, f->other_stream, f->stream[0] != '\0');
        bl_text_add(out, "\n");
    }
    if (f->surfaced[0] != '\0') {
        bl_text_add(out, "    surfaced at: ");
        add_safe(out, f->surfaced);
        bl_text_add(out, "\n");
    }
}

void bl_report_fault_describe(const bl_report_fault *f, bl_text *out)
{
    bl_text_add(out, "belay: ");
    describe_what(f, out);
    bl_text_format(out, " (%s)\n", belay_code_name(f->code));
    describe_call(f, out);
    describe_others(f, out);
    describe_tensors(f, out);
    describe_values(f, out);
    add_lines(out, f->facts);
    describe_position(f, out);
    if (f->n_echoes > 0)
        bl_text_format(out, "    echoes: %" PRIu64 " later fault%s of the same cause\n", f->n_echoes,
                       f->n_echoes > 1 ? "s" : "");
    const char *hint = hint_of(f);
    if (hint != NULL)
        bl_text_format(out, "    hint: %s\n", hint);
    bl_text_add(out, "    try: ");
    add_safe(out, f->advice[0] != '\0' ? f->advice : belay_code_advice(f->code));
    bl_text_add(out, "\n");
}

static void json_string(const char *key, const char *value, bl_text *out)
{
    bl_text_format(out, "\"%s\":\"", key);
    for (const char *c = value; *c != '\0';) {
        int length = bl_utf8_length(c, (int64_t)strnlen(c, 4));
        unsigned char byte = (unsigned char)*c;
        if (byte == '"' || byte == '\\')
            bl_text_format(out, "\\%c", byte);
        else if (length == 0)
            bl_text_add(out, "\\ufffd");
        else if (byte < 0x20)
            bl_text_format(out, "\\u%04x", byte);
        else
            bl_text_add_bytes(out, c, length);
        c += length > 0 ? length : 1;
    }
    bl_text_add(out, "\"");
}

static void json_shape(const belay_shape *shape, bl_text *out) { bl_report_shape(shape, out); }

static void json_tensors(const bl_report_fault *f, bl_text *out)
{
    bl_text_add(out, ",\"tensors\":[");
    int n_told = 0;
    for (int i = 0; i < f->n_tensors; i++) {
        if (f->tensor[i].is_absent)
            continue;
        bl_text_add(out, n_told++ > 0 ? ",{" : "{");
        json_string("name", name_of(&f->tensor[i]), out);
        bl_text_add(out, ",\"shape\":");
        json_shape(&f->tensor[i].shape, out);
        bl_text_add(out, ",");
        json_string("dtype", belay_dtype_name(f->tensor[i].dtype), out);
        bl_text_add(out, "}");
    }
    bl_text_add(out, "]");
}

void bl_report_fault_json(const bl_report_fault *f, bl_text *out)
{
    bl_text what = {0};
    describe_what(f, &what);
    bl_text_add(out, "{");
    json_string("code", belay_code_name(f->code), out);
    bl_text_add(out, ",");
    json_string("what", bl_text_get(&what), out);
    bl_text_fini(&what);
    const struct {
        const char *key, *value;
    } strings[] = {{"op", f->op}, {"layer", f->layer}, {"site", f->site}, {"device", f->device}, {"sample", f->sample}};
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++)
        if (strings[i].value[0] != '\0') {
            bl_text_add(out, ",");
            json_string(strings[i].key, strings[i].value, out);
        }
    if (f->operand >= 0 && f->element >= 0) {
        bl_text_add(out, ",");
        json_string("tensor", name_of(&f->tensor[f->operand]), out);
        bl_text_add(out, ",\"at\":");
        bl_report_coordinates(&f->tensor[f->operand].shape, f->element, out);
        bl_text_format(out, ",\"got\":%" PRId64 ",\"limit\":%" PRId64 ",\"count\":%" PRIu64, f->got, f->limit,
                       f->count);
    }
    if (f->n_tensors > 0)
        json_tensors(f, out);
    if (f->has_position)
        bl_text_format(out,
                       ",\"epoch\":%" PRIu32 ",\"batch\":%" PRIu32 ",\"micro_batch\":%" PRIu32 ",\"step\":%" PRIu64,
                       f->epoch, f->position, f->micro_batch, f->step);
    bl_text_format(out, ",\"rank\":%d}", f->rank);
}
