/* SPDX-License-Identifier: Apache-2.0 */
/* faults.jsonl: a line for each fault, with what is known of its batch and what was done.  Lines outlive a kill.  Of
 * several ranks each writes its own file; rank 0's has a short line for each micro-batch that another one lost. */
#include <string.h>

#include "base/memory.h"
#include "train/trainer.h"

enum { MAX_SAMPLES = 64 };

void bl_train_told_add(void *state, const bl_report_fault *fault)
{
    bl_train_told *told = state;
    if (told->n < BL_TRAIN_MAX_TOLD)
        told->fault[told->n++] = *fault;
    else
        told->n_lost++;
}

/* ---- what is known of a batch --------------------------------------------------------------------------------------- */

/* {"name", "shape", "dtype", "device", "min", "max"}; without the last two when there is nothing to look at. */
static json_t *describe_tensor(belay_context *context, belay_tensor tensor)
{
    json_t *out = json_object(), *shape = json_array();
    belay_shape s = belay_tensor_shape(tensor);
    for (int i = 0; i < s.rank; i++)
        json_array_append_new(shape, json_integer(s.size[i]));
    json_object_set_new(out, "name", json_string(belay_tensor_name(tensor)));
    json_object_set_new(out, "shape", shape);
    json_object_set_new(out, "dtype", json_string(belay_dtype_name(belay_tensor_dtype(tensor))));
    json_object_set_new(out, "device", json_string(belay_device_get(context)));
    int64_t n = belay_tensor_n_elements(tensor);
    int64_t *values = belay_tensor_dtype(tensor) == BELAY_I64 && n > 0 ? bl_alloc(n, sizeof *values) : NULL;
    if (values != NULL && belay_tensor_read(tensor, values, n * (int64_t)sizeof *values) == BELAY_OK) {
        int64_t low = values[0], high = values[0];
        for (int64_t i = 1; i < n; i++) {
            low = values[i] < low ? values[i] : low;
            high = values[i] > high ? values[i] : high;
        }
        json_object_set_new(out, "min", json_integer(low));
        json_object_set_new(out, "max", json_integer(high));
    }
    bl_free(values);
    return out;
}

/* ["train.tsv:12", ...], at most MAX_SAMPLES; a sample without a file by its number. */
static json_t *describe_samples(const belay_loader *loader, int64_t n)
{
    json_t *out = json_array();
    for (int64_t row = 0; row < n && row < MAX_SAMPLES; row++) {
        const char *file;
        int64_t line, index = belay_loader_origin(loader, row, &file, &line);
        bl_text words = {0};
        if (file == NULL)
            bl_text_format(&words, "sample %" JSON_INTEGER_FORMAT, (json_int_t)index);
        else
            bl_text_add_escaped(&words, file, (int64_t)strlen(file), 1024);
        if (file != NULL && line > 0)
            bl_text_format(&words, ":%" JSON_INTEGER_FORMAT, (json_int_t)line);
        json_array_append_new(out, json_string(bl_text_get(&words)));
        bl_text_fini(&words);
    }
    return out;
}

void bl_train_look(bl_trainer *t, const belay_loader *loader, const belay_batch *batch)
{
    bl_train_told *told = t->told;
    if (told->n == 0 || told->batch != NULL || t->folder.faults == NULL)
        return;
    bl_json_init();
    told->batch = json_object();
    if (!belay_tensor_is_nil(batch->tokens))
        json_object_set_new(told->batch, "inputs", describe_tensor(t->context, batch->tokens));
    if (!belay_tensor_is_nil(batch->labels))
        json_object_set_new(told->batch, "labels", describe_tensor(t->context, batch->labels));
    json_object_set_new(told->batch, "n_samples", json_integer(batch->n_samples));
    json_object_set_new(told->batch, "samples", describe_samples(loader, batch->n_samples));
}

/* ---- lines -------------------------------------------------------------------------------------------------------- */

static belay_code no_memory(bl_trainer *t) { return bl_file_no_memory(&t->error, "write", t->folder.faults_path); }

/* The fault's own object with the rest added. */
static belay_code add_rest(bl_trainer *t, json_t *line, const bl_report_fault *fault, const char *policy)
{
    const char *what = belay_code_severity(fault->code) == BELAY_SEVERITY_WARNING ? "warned" : policy;
    json_object_set_new(line, "policy", json_string(what));
    if (t->told->batch != NULL)
        json_object_update(line, t->told->batch);
    if (t->told->n_lost > 0)
        json_object_set_new(line, "faults_not_kept", json_integer(t->told->n_lost));
    return bl_json_out_of_memory() ? no_memory(t) : BELAY_OK;
}

static belay_code write_line(bl_trainer *t, const json_t *line)
{
    bl_text text = {0};
    bl_json_to_text(line, &text);
    belay_code code =
        text.failed ? no_memory(t) : bl_file_append_line(t->folder.faults, bl_text_get(&text), text.n_bytes, &t->error);
    bl_text_fini(&text);
    return code;
}

static belay_code write_fault(bl_trainer *t, const bl_report_fault *fault, const char *policy)
{
    bl_text text = {0};
    json_t *line = NULL;
    bl_report_fault_json(fault, &text);
    belay_code code = text.failed
                          ? no_memory(t)
                          : bl_json_parse(bl_text_get(&text), text.n_bytes, t->folder.faults_path, 1, &line, &t->error);
    bl_text_fini(&text);
    if (code == BELAY_OK)
        code = add_rest(t, line, fault, policy);
    if (code == BELAY_OK)
        code = write_line(t, line);
    json_decref(line);
    return code;
}

static belay_code write_all(bl_trainer *t, const char *policy)
{
    if (t->folder.faults == NULL)
        return BELAY_OK;
    for (int i = 0; i < t->told->n; i++)
        TRY(write_fault(t, &t->told->fault[i], policy));
    return bl_file_append_flush(t->folder.faults, &t->error);
}

belay_code bl_train_record(bl_trainer *t, const char *policy)
{
    bl_train_told *told = t->told;
    if (told->n == 0)
        return BELAY_OK;
    belay_code code = write_all(t, policy);
    json_decref(told->batch);
    told->batch = NULL;
    told->n = 0;
    told->n_lost = 0;
    return code;
}

belay_code bl_train_record_of_rank(bl_trainer *t, int rank, belay_code code, int64_t position, const char *policy)
{
    bl_report_fault fault;
    if (t->folder.faults == NULL)
        return BELAY_OK;
    bl_report_fault_init(&fault, code);
    snprintf(fault.what, sizeof fault.what, "a micro-batch faulted on rank %d", rank);
    bl_report_fault_fact(&fault, "faults.rank%d.jsonl has the report of it", rank);
    fault.has_position = true;
    fault.epoch = (uint32_t)t->state.epoch;
    fault.position = (uint32_t)position;
    fault.micro_batch = (uint32_t)(position - t->state.position);
    fault.step = (uint64_t)t->state.steps;
    fault.rank = rank;
    TRY(write_fault(t, &fault, policy));
    return bl_file_append_flush(t->folder.faults, &t->error);
}
