/* SPDX-License-Identifier: Apache-2.0 */
/* Faults as JSON: see fault.h.  Keys once given stay as they are. */
#include <inttypes.h>
#include <string.h>

#include "report/fault.h"
#include "report/fault_words.h"
#include "report/json.h"
#include "report/reason.h"

static void text_or_nothing(const char *key, const char *value, bl_text *out)
{
    if (value[0] == '\0')
        return;
    bl_text_add(out, ",");
    bl_report_json_string(key, value, out);
}

static void add_tensor(const bl_report_fault *f, const bl_report_tensor *t, bl_text *out)
{
    bl_text_add(out, "{");
    bl_report_json_string("name", bl_report_tensor_name(t), out);
    bl_text_add(out, ",\"shape\":");
    bl_report_shape(&t->shape, out);
    bl_text_add(out, ",");
    bl_report_json_string("dtype", belay_dtype_name(t->dtype), out);
    text_or_nothing("role", t->role, out);
    text_or_nothing("device", bl_report_tensor_device(f, t), out);
    if (t->is_output)
        bl_text_add(out, ",\"output\":true");
    bl_text_add(out, "}");
}

static void add_tensors(const bl_report_fault *f, bl_text *out)
{
    int n_told = 0;
    bl_text_add(out, ",\"tensors\":[");
    for (int i = 0; i < f->n_tensors; i++) {
        if (f->tensor[i].is_absent)
            continue;
        bl_text_add(out, n_told++ > 0 ? "," : "");
        add_tensor(f, &f->tensor[i], out);
    }
    bl_text_add(out, "]");
}

static void add_element(const bl_report_fault *f, bl_text *out)
{
    const bl_report_tensor *t = &f->tensor[f->operand];
    bl_text_add(out, ",");
    bl_report_json_string("tensor", bl_report_tensor_name(t), out);
    bl_text_add(out, ",\"at\":");
    bl_report_coordinates(&t->shape, f->element, out);
    bl_text_format(out, ",\"got\":%" PRId64 ",\"limit\":%" PRId64 ",\"count\":%" PRIu64, f->got, f->limit, f->count);
}

/* What a kernel of the user's own noted in an item: about a coordinate, or about the item itself. */
static void add_item(const bl_report_fault *f, bl_text *out)
{
    bl_text_format(out, ",\"item\":%" PRId64 ",\"items\":%" PRId64 ",\"count\":%" PRIu64, f->element, f->n_items,
                   f->count);
    if (f->operand < 0)
        return;
    text_or_nothing("tensor", bl_report_tensor_name(&f->tensor[f->operand]), out);
    if (f->code == BELAY_INDEX_RANGE)
        bl_text_format(out, ",\"axis\":%d,\"got\":%" PRId64 ",\"limit\":%" PRId64, f->axis, f->got, f->limit);
}

/* What came later into the format: keys of older lines stand before them. */
static void add_element_rest(const bl_report_fault *f, bl_text *out)
{
    text_or_nothing("operand", f->tensor[f->operand].role, out);
    if (f->table >= 0)
        text_or_nothing("table", bl_report_tensor_name(&f->tensor[f->table]), out);
    bl_text_format(out, ",\"element\":%" PRId64, f->element);
    for (int i = 0; i < f->n_values; i++)
        bl_text_format(out, "%s%" PRId64, i == 0 ? ",\"values\":[" : ",", f->value[i]);
    bl_text_add(out, f->n_values > 0 ? "]" : "");
}

static void add_places(const bl_report_fault *f, bl_text *out)
{
    text_or_nothing("source", f->source, out);
    text_or_nothing("surfaced", f->surfaced, out);
    if (f->launch != 0)
        bl_text_format(out, ",\"launch\":%" PRIu64, f->launch);
    text_or_nothing("stream", f->stream, out);
    if (f->other_site[0] != '\0') {
        text_or_nothing("other", f->other_words, out);
        text_or_nothing("other_site", f->other_site, out);
        text_or_nothing("other_stream", f->other_stream, out);
    }
    if (f->n_echoes > 0)
        bl_text_format(out, ",\"echoes\":%" PRIu64, f->n_echoes);
    if (f->is_echo)
        bl_text_add(out, ",\"echo\":true");
}

static void add_facts(const char *lines, bl_text *out)
{
    char line[sizeof((bl_report_fault *)0)->facts];
    bl_text_add(out, ",\"facts\":[");
    for (int n = 0; *lines != '\0'; n++) {
        size_t length = strcspn(lines, "\n");
        memcpy(line, lines, length);
        line[length] = '\0';
        bl_text_add(out, n > 0 ? "," : "");
        bl_report_json_text(line, out);
        lines += length + (lines[length] == '\n');
    }
    bl_text_add(out, "]");
}

static void add_advice(const bl_report_fault *f, bl_text *out)
{
    const bl_report_reason *reason = bl_report_reason_find(f);
    if (f->facts[0] != '\0')
        add_facts(f->facts, out);
    if (reason != NULL) {
        text_or_nothing("reason", reason->name, out);
        text_or_nothing("likely", reason->likely, out);
    }
    text_or_nothing("try", bl_report_fault_advice(f), out);
}

/* Texts that a fault may have, before what is always there. */
static void add_names(const bl_report_fault *f, bl_text *out)
{
    text_or_nothing("op", f->op, out);
    text_or_nothing("layer", f->layer, out);
    text_or_nothing("site", f->site, out);
    text_or_nothing("device", f->device, out);
    text_or_nothing("sample", f->sample, out);
}

void bl_report_fault_json(const bl_report_fault *f, bl_text *out)
{
    static const char *const severities[] = {"warning", "fault", "fatal", "bug"};
    bool has_element = f->operand >= 0 && f->element >= 0 && f->n_items == 0;
    bl_text words = {0};
    bl_text_add(out, "{");
    bl_report_json_string("code", belay_code_name(f->code), out);
    bl_report_fault_headline(f, &words);
    text_or_nothing("what", bl_text_get(&words), out);
    add_names(f, out);
    if (has_element)
        add_element(f, out);
    else if (f->n_items > 0)
        add_item(f, out);
    if (f->n_tensors > 0)
        add_tensors(f, out);
    if (f->has_position)
        bl_text_format(out,
                       ",\"epoch\":%" PRIu32 ",\"batch\":%" PRIu32 ",\"micro_batch\":%" PRIu32 ",\"step\":%" PRIu64,
                       f->epoch, f->position, f->micro_batch, f->step);
    bl_text_format(out, ",\"rank\":%d,\"number\":%d", f->rank, (int)f->code);
    text_or_nothing("severity", severities[belay_code_severity(f->code)], out);
    if (f->op[0] != '\0')
        bl_text_format(out, ",\"backward\":%s", f->is_backward ? "true" : "false");
    if (f->sample_row >= 0)
        bl_text_format(out, ",\"sample_row\":%" PRId64, f->sample_row);
    if (has_element)
        add_element_rest(f, out);
    add_places(f, out);
    add_advice(f, out);
    bl_text_clear(&words);
    bl_report_fault_describe(f, &words);
    text_or_nothing("text", bl_text_get(&words), out);
    bl_text_add(out, "}");
    out->failed = out->failed || words.failed;
    bl_text_fini(&words);
}
