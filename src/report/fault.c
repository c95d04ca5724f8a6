/* SPDX-License-Identifier: Apache-2.0 */
#include "report/fault.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "report/fault_words.h"
#include "report/reason.h"

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

const char *bl_report_tensor_name(const bl_report_tensor *t) { return t->name[0] != '\0' ? t->name : t->role; }

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
    add_safe(out, bl_report_tensor_name(t));
    bl_report_coordinates(&t->shape, f->element, out);
    bl_text_format(out, " is %" PRId64 ", outside [0, %" PRId64 ")", f->got, f->limit);
    if (f->table >= 0) {
        bl_text_add(out, " of ");
        add_safe(out, bl_report_tensor_name(&f->tensor[f->table]));
    }
}

void bl_report_fault_headline(const bl_report_fault *f, bl_text *out)
{
    if (f->what[0] != '\0')
        add_safe(out, f->what);
    else if (f->operand >= 0 && f->element >= 0)
        describe_element(f, out);
    else
        bl_text_add(out, belay_code_why(f->code));
}

const char *bl_report_tensor_device(const bl_report_fault *f, const bl_report_tensor *t)
{
    return t->device[0] != '\0' ? t->device : f->device;
}

static bool is_on_several_devices(const bl_report_fault *f)
{
    const char *first = NULL;
    for (int i = 0; i < f->n_tensors; i++) {
        if (f->tensor[i].is_absent)
            continue;
        if (first != NULL && strcmp(first, bl_report_tensor_device(f, &f->tensor[i])) != 0)
            return true;
        first = bl_report_tensor_device(f, &f->tensor[i]);
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
        device = bl_report_tensor_device(f, t);
        bl_text_add(out, n_told++ == 0 ? "    tensors: " : "; ");
        add_safe(out, bl_report_tensor_name(t));
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
    if (f->count > 0 && f->n_items > 0)
        bl_text_format(out, "    bad: %" PRIu64 " time%s in a launch of %" PRId64 " item%s\n", f->count,
                       f->count > 1 ? "s" : "", f->n_items, f->n_items > 1 ? "s" : "");
    if (f->count == 0 || f->operand < 0 || f->n_items > 0)
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

const char *bl_report_fault_advice(const bl_report_fault *f)
{
    if (f->advice[0] != '\0')
        return f->advice;
    const bl_report_reason *reason = bl_report_reason_find(f);
    bool is_refused = belay_code_severity(f->code) != BELAY_SEVERITY_WARNING;
    return reason != NULL && is_refused ? reason->advice : belay_code_advice(f->code);
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
    if (f->site[0] == '\0' || f->source[0] == '\0')
        return;
    bl_text_add(out, "    source: ");
    add_safe(out, f->source);
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
    bl_report_fault_headline(f, out);
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
    const bl_report_reason *reason = bl_report_reason_find(f);
    if (reason != NULL)
        bl_text_format(out, "    likely: %s\n", reason->likely);
    bl_text_add(out, "    try: ");
    add_safe(out, bl_report_fault_advice(f));
    bl_text_add(out, "\n");
}
