/* SPDX-License-Identifier: Apache-2.0 */
#include "golden/golden.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/dialect.h"
#include "report/fault.h"

void golden_fail(golden *g, const char *format, ...)
{
    va_list args;
    printf("FAIL %s: ", g->label);
    va_start(args, format);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    g->n_failures++;
}

void golden_skip(golden *g) { g->is_skipped = true; }

/* ---- options ---- */

const char *golden_text(golden *g, const char *key)
{
    const char *text = bl_safetensors_metadata(g->file, key);
    if (text == NULL)
        golden_fail(g, "the file has no option %s", key);
    return text != NULL ? text : "";
}

bool golden_is_null(golden *g, const char *key)
{
    const char *text = bl_safetensors_metadata(g->file, key);
    return text == NULL || strcmp(text, "null") == 0;
}

double golden_number(golden *g, const char *key)
{
    const char *text = golden_text(g, key);
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0')
        golden_fail(g, "option %s is %s, which is no number", key, text);
    return value;
}

bool golden_flag(golden *g, const char *key) { return strcmp(golden_text(g, key), "true") == 0; }

int golden_list(golden *g, const char *key, int64_t out[BELAY_MAX_RANK])
{
    const char *at = golden_text(g, key);
    int n = 0;
    for (at += *at == '['; *at != '\0' && *at != ']' && n < BELAY_MAX_RANK;) {
        char *end;
        out[n] = strtoll(at, &end, 10);
        if (end == at) {
            golden_fail(g, "option %s is no list of numbers", key);
            return n;
        }
        n++;
        at = end + strspn(end, ", ");
    }
    return n;
}

/* ---- tensors ---- */

static const int dtype_of[BL_SAFETENSORS_N_DTYPES] = {
    [BL_SAFETENSORS_F64] = BELAY_F64,   [BL_SAFETENSORS_F32] = BELAY_F32, [BL_SAFETENSORS_F16] = BELAY_F16,
    [BL_SAFETENSORS_BF16] = BELAY_BF16, [BL_SAFETENSORS_I64] = BELAY_I64, [BL_SAFETENSORS_I32] = BELAY_I32,
    [BL_SAFETENSORS_I16] = -1,          [BL_SAFETENSORS_I8] = -1,         [BL_SAFETENSORS_U64] = -1,
    [BL_SAFETENSORS_U32] = -1,          [BL_SAFETENSORS_U16] = BELAY_U16, [BL_SAFETENSORS_U8] = BELAY_U8,
    [BL_SAFETENSORS_BOOL] = BELAY_BOOL,
};

bool golden_has(const golden *g, const char *name) { return bl_safetensors_find(g->file, name) != NULL; }

const bl_safetensors_entry *golden_bytes(golden *g, const char *name, const void **bytes)
{
    bl_error error = {0};
    int64_t n_bytes;
    const bl_safetensors_entry *entry = bl_safetensors_find(g->file, name);
    if (entry == NULL || dtype_of[entry->dtype] < 0 || entry->rank > BELAY_MAX_RANK) {
        golden_fail(g, "the file has no tensor %s that Belay can hold", name);
        return NULL;
    }
    if (bl_safetensors_bytes(g->file, entry, bytes, &n_bytes, &error) != BELAY_OK) {
        golden_fail(g, "%s", error.what);
        return NULL;
    }
    return entry;
}

static belay_shape shape_of(const bl_safetensors_entry *entry)
{
    belay_shape shape = {.rank = entry->rank};
    for (int i = 0; i < entry->rank; i++)
        shape.size[i] = entry->shape[i];
    return shape;
}

belay_device_guard golden_there(golden *g) { return belay_device_guard_open(g->context, g->device); }

belay_tensor golden_from(golden *g, belay_dtype dtype, belay_shape shape, const void *bytes, int64_t n_bytes)
{
    belay_device_guard there = golden_there(g);
    belay_tensor tensor = belay_tensor_from(g->context, dtype, shape, bytes, n_bytes);
    golden_back(there);
    return tensor;
}

static const char *full_name(const golden *g, const char *name, char out[128])
{
    snprintf(out, 128, "param.%s", name);
    if (!golden_has(g, out))
        snprintf(out, 128, "input.%s", name);
    return out;
}

belay_tensor golden_input(golden *g, const char *name)
{
    char full[128], grad[128];
    const void *bytes;
    const bl_safetensors_entry *entry = golden_bytes(g, full_name(g, name, full), &bytes);
    if (entry == NULL || g->n_leaves == GOLDEN_NAMES)
        return (belay_tensor){0};
    belay_tensor tensor = golden_from(g, (belay_dtype)dtype_of[entry->dtype], shape_of(entry), bytes, entry->n_bytes);
    belay_tensor_name_set(tensor, name);
    snprintf(grad, sizeof grad, "grad.%s", name);
    if (golden_has(g, grad))
        belay_tensor_requires_grad_set(tensor, true);
    golden_named *leaf = &g->leaf[g->n_leaves++];
    snprintf(leaf->name, sizeof leaf->name, "%s", name);
    leaf->tensor = tensor;
    return tensor;
}

belay_tensor golden_input_row(golden *g, const char *name, int64_t row)
{
    char full[128];
    const void *bytes;
    const bl_safetensors_entry *entry = golden_bytes(g, full_name(g, name, full), &bytes);
    if (entry == NULL || entry->rank < 1 || row < 0 || row >= entry->shape[0])
        return (belay_tensor){0};
    belay_shape shape = {.rank = entry->rank - 1};
    for (int i = 0; i < shape.rank; i++)
        shape.size[i] = entry->shape[i + 1];
    int64_t n_bytes = entry->n_bytes / entry->shape[0];
    return belay_tensor_name_set(
        golden_from(g, (belay_dtype)dtype_of[entry->dtype], shape, (const char *)bytes + row * n_bytes, n_bytes), name);
}

/* ---- comparing ---- */

static double value_at(int dtype, const void *bytes, int64_t i)
{
    switch (dtype) {
    case BELAY_F32:
        return (double)((const float *)bytes)[i];
    case BELAY_F64:
        return ((const double *)bytes)[i];
    case BELAY_BF16:
        return (double)bl_from_bf16(((const bl_bf16 *)bytes)[i]);
    case BELAY_F16:
        return (double)bl_from_f16(((const bl_f16 *)bytes)[i]);
    case BELAY_I64:
        return (double)((const int64_t *)bytes)[i];
    case BELAY_I32:
        return (double)((const int32_t *)bytes)[i];
    case BELAY_U16:
        return (double)((const uint16_t *)bytes)[i];
    default:
        return (double)((const uint8_t *)bytes)[i];
    }
}

/* How far beyond what is allowed, 0 when it matches. */
static double excess(const golden *g, double got, double want)
{
    if (got == want)
        return g->bits && signbit(got) != signbit(want) ? (double)INFINITY : 0;
    if (isnan(got) && isnan(want))
        return 0;
    double distance = fabs(got - want), allowed = g->atol + g->rtol * fabs(want);
    if (distance <= allowed)
        return 0;
    return isnan(distance) || allowed == 0 ? (double)INFINITY : distance / allowed;
}

/* Whether element e of an entry is named in the option noise_only: {"<entry>": [first, end) of its first axis}. */
static bool is_noise(const golden *g, const bl_safetensors_entry *entry, int64_t e)
{
    const char *at = bl_safetensors_metadata(g->file, "noise_only");
    at = at != NULL && entry->rank > 0 && entry->n_elements > 0 ? strstr(at, entry->name) : NULL;
    long long first, end;
    if (at == NULL || sscanf(at + strlen(entry->name), "\": [%lld, %lld]", &first, &end) != 2)
        return false;
    int64_t row = e / (entry->n_elements / entry->shape[0]);
    return row >= first && row < end;
}

/* Compares n values, the first of them element `first` of `entry`; tells the worst. */
static void compare(golden *g, const bl_safetensors_entry *entry, int64_t first, const double *got,
                    const void *want_bytes, int64_t n)
{
    int64_t worst = -1, n_bad = 0;
    double most = 0;
    int dtype = dtype_of[entry->dtype];
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &got[i], sizeof bits);
        g->bits_told = (g->bits_told ^ bits) * 1099511628211u;
        double e = excess(g, got[i], value_at(dtype, want_bytes, first + i));
        if (e > 0 && is_noise(g, entry, first + i))
            continue;
        n_bad += e > 0;
        if (e > most || (e > 0 && worst < 0)) {
            most = e;
            worst = i;
        }
    }
    for (int64_t i = 0; i < bl_safetensors_n_entries(g->file); i++)
        if (bl_safetensors_entry_at(g->file, i) == entry)
            g->is_compared[i] = true;
    if (n_bad == 0)
        return;
    belay_shape shape = shape_of(entry);
    bl_text at = {0};
    bl_report_coordinates(&shape, first + worst, &at);
    golden_fail(g,
                "%s%s is %.9g, not %.9g: %.3g times what is allowed (atol %g, rtol %g); %" PRId64 " of %" PRId64
                " elements differ",
                entry->name, bl_text_get(&at), got[worst], value_at(dtype, want_bytes, first + worst), most, g->atol,
                g->rtol, n_bad, n);
    bl_text_fini(&at);
}

static bool same_form(golden *g, const bl_safetensors_entry *entry, int skip_axes, belay_tensor tensor)
{
    belay_shape has = belay_tensor_shape(tensor), want = shape_of(entry);
    bool same = !belay_tensor_is_nil(tensor) && has.rank == want.rank - skip_axes &&
                (int)belay_tensor_dtype(tensor) == dtype_of[entry->dtype];
    for (int i = 0; i < has.rank && same; i++)
        same = has.size[i] == want.size[i + skip_axes];
    if (!same) {
        bl_text words[2] = {{0}, {0}};
        bl_report_shape(&has, &words[0]);
        bl_report_shape(&want, &words[1]);
        golden_fail(g, "%s: got %s %s%s, the file has %s %s", entry->name, bl_text_get(&words[0]),
                    belay_dtype_name(belay_tensor_dtype(tensor)), belay_tensor_is_nil(tensor) ? " (nil)" : "",
                    bl_text_get(&words[1]), bl_safetensors_dtype_name(entry->dtype));
        bl_text_fini(&words[0]);
        bl_text_fini(&words[1]);
    }
    return same;
}

/* The tensor's values as doubles, scaled; NULL after a failure. */
static double *read_values(golden *g, belay_tensor tensor)
{
    int dtype = (int)belay_tensor_dtype(tensor);
    int64_t n = belay_tensor_n_elements(tensor), n_bytes = n * belay_dtype_size((belay_dtype)dtype);
    void *bytes = bl_alloc(n_bytes, 1);
    double *values = bl_alloc(n, sizeof *values);
    if (bytes == NULL || values == NULL || belay_tensor_read(tensor, bytes, n_bytes) != BELAY_OK) {
        golden_fail(g, "a result could not be read");
        bl_free(values);
        values = NULL;
    }
    for (int64_t i = 0; i < n && values != NULL; i++)
        values[i] = value_at(dtype, bytes, i) * g->scale;
    bl_free(bytes);
    return values;
}

static void check(golden *g, const char *name, int64_t row, bool is_row, belay_tensor tensor)
{
    const void *bytes;
    const bl_safetensors_entry *entry = golden_bytes(g, name, &bytes);
    if (entry == NULL || !same_form(g, entry, is_row, tensor))
        return;
    int64_t n = belay_tensor_n_elements(tensor);
    double *got = read_values(g, tensor);
    if (got != NULL)
        compare(g, entry, row * n, got, bytes, n);
    bl_free(got);
}

void golden_check(golden *g, const char *name, belay_tensor tensor) { check(g, name, 0, false, tensor); }
void golden_check_row(golden *g, const char *name, int64_t row, belay_tensor tensor)
{
    check(g, name, row, true, tensor);
}

void golden_check_numbers(golden *g, const char *name, const double *got, int64_t n)
{
    const void *bytes;
    const bl_safetensors_entry *entry = golden_bytes(g, name, &bytes);
    if (entry == NULL)
        return;
    if (entry->n_elements != n)
        golden_fail(g, "%s: got %" PRId64 " values, the file has %" PRId64, name, n, entry->n_elements);
    else
        compare(g, entry, 0, got, bytes, n);
}

/* ---- outputs and gradients ---- */

void golden_output(golden *g, const char *name, belay_tensor tensor)
{
    char full[128];
    snprintf(full, sizeof full, "output.%s", name);
    golden_check(g, full, tensor);
    if (g->n_outputs < GOLDEN_OUTPUTS) {
        golden_named *output = &g->output[g->n_outputs++];
        snprintf(output->name, sizeof output->name, "%s", name);
        output->tensor = tensor;
    }
}

/* One walk for all outputs: from the sum over them of output times upstream. */
static belay_tensor sum_of_outputs(golden *g)
{
    belay_tensor loss = {0};
    for (int i = 0; i < g->n_outputs; i++) {
        char name[128];
        snprintf(name, sizeof name, "upstream.%s", g->output[i].name);
        if (!belay_tensor_requires_grad(g->output[i].tensor))
            continue;
        belay_tensor part = belay_sum(belay_mul(g->output[i].tensor, golden_input(g, name)), NULL);
        loss = belay_tensor_is_nil(loss) ? part : belay_add(loss, part);
    }
    return loss;
}

/* Whether an op gave an input back as it was: then there is nothing to walk back from. */
static bool is_leaf(const golden *g, belay_tensor tensor)
{
    for (int i = 0; i < g->n_leaves; i++)
        if (g->leaf[i].tensor.slot == tensor.slot && g->leaf[i].tensor.generation == tensor.generation)
            return true;
    return false;
}

void golden_backward(golden *g)
{
    int n_leaves = g->n_leaves;
    bool is_wanted = false;
    for (int i = 0; i < n_leaves; i++)
        is_wanted = is_wanted || belay_tensor_requires_grad(g->leaf[i].tensor);
    if (!is_wanted)
        return;
    char name[128];
    snprintf(name, sizeof name, "upstream.%s", g->output[0].name);
    if (g->n_outputs == 1 && !is_leaf(g, g->output[0].tensor))
        belay_backward_from(g->output[0].tensor, golden_input(g, name));
    else
        belay_backward(sum_of_outputs(g));
    for (int i = 0; i < n_leaves; i++) {
        snprintf(name, sizeof name, "grad.%s", g->leaf[i].name);
        if (golden_has(g, name))
            golden_check(g, name, belay_tensor_grad(g->leaf[i].tensor));
    }
}
