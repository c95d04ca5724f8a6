/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 and Hugging Face's files: PyTorch's logits, every form that the files come in, what is refused by whole text,
 * and a file of ours in the same names and layouts.  gpt2_small.py wrote the two files. */
#include "support/told.h"

#include <belay/train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/safetensors.h"

enum { VOCABULARY = 96, BATCH = 2, TIME = 16, N_LOGITS = BATCH * TIME * VOCABULARY, MOST_ENTRIES = 64 };

static const char small[] = BELAY_SOURCE_DIR "/tests/train/gpt2_small.safetensors";
static const char expected[] = BELAY_SOURCE_DIR "/tests/train/gpt2_small_logits.safetensors";

static char written[64] = "/tmp/belay-gpt2-XXXXXX";

static belay_module *make_small(belay_context *context)
{
    return belay_gpt2(
        context, &(belay_gpt2_options){.vocabulary = VOCABULARY, .context = 24, .layers = 2, .heads = 3, .width = 24});
}

static bl_safetensors *open_file(const char *path)
{
    bl_error error = {0};
    bl_safetensors *file = NULL;
    assert_int_equal(bl_safetensors_open(path, &file, &error), BELAY_OK);
    return file;
}

static void expect_logits(belay_context *context, belay_module *model)
{
    bl_error error = {0};
    bl_safetensors *file = open_file(expected);
    int64_t ids[BATCH * TIME];
    static float want[N_LOGITS], got[N_LOGITS];
    assert_int_equal(bl_safetensors_read(file, bl_safetensors_find(file, "ids"), ids, sizeof ids, &error), BELAY_OK);
    assert_int_equal(bl_safetensors_read(file, bl_safetensors_find(file, "logits"), want, sizeof want, &error),
                     BELAY_OK);
    bl_safetensors_close(file);
    belay_tensor tokens = belay_tensor_from(context, BELAY_I64, belay_shape2(BATCH, TIME), ids, sizeof ids);
    assert_int_equal(belay_tensor_read(belay_forward(model, tokens), got, sizeof got), BELAY_OK);
    for (int i = 0; i < N_LOGITS; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-4f))
            fail_msg("logit %d is %.9g, PyTorch's is %.9g", i, (double)got[i], (double)want[i]);
}

static void a_file_by_its_conventions_gives_pytorchs_logits(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_module *model = make_small(context);
    assert_int_equal(belay_gpt2_load(model, small), BELAY_OK);
    expect_logits(context, model);
    told_close(context);
}

/* ---- the same file, changed ---- */

typedef struct change {
    bool prefixed, tied_head, other_head, without_masks;
    const char *left_out, *renamed, *turned, *widened;
} change;

typedef struct copy {
    bl_safetensors_source source[MOST_ENTRIES];
    char name[MOST_ENTRIES][64];
    int64_t shape[MOST_ENTRIES][BL_SAFETENSORS_MAX_RANK];
    int n;
} copy;

static void add_entry(copy *c, bl_safetensors *file, const bl_safetensors_entry *entry, const char *name,
                      const change *ch)
{
    bl_error error = {0};
    bl_safetensors_source *s = &c->source[c->n];
    int64_t n_bytes;
    assert_true(c->n < MOST_ENTRIES);
    snprintf(c->name[c->n], sizeof c->name[0], "%s%s",
             ch->prefixed && name != entry->name ? ""
             : ch->prefixed                      ? "transformer."
                                                 : "",
             name);
    memcpy(c->shape[c->n], entry->shape, sizeof entry->shape);
    *s = (bl_safetensors_source){
        .name = c->name[c->n], .dtype = entry->dtype, .rank = entry->rank, .shape = c->shape[c->n]};
    assert_int_equal(bl_safetensors_bytes(file, entry, &s->bytes, &n_bytes, &error), BELAY_OK);
    if (ch->turned != NULL && strcmp(ch->turned, entry->name) == 0) {
        c->shape[c->n][0] = entry->shape[1];
        c->shape[c->n][1] = entry->shape[0];
    }
    if (ch->widened != NULL && strcmp(ch->widened, entry->name) == 0) { /* half as many doubles */
        s->dtype = BL_SAFETENSORS_F64;
        c->shape[c->n][entry->rank - 1] /= 2;
    }
    c->n++;
}

static const char *changed(const change *ch)
{
    static copy c;
    bl_error error = {0};
    bl_safetensors *file = open_file(small);
    c.n = 0;
    for (int64_t i = 0; i < bl_safetensors_n_entries(file); i++) {
        const bl_safetensors_entry *entry = bl_safetensors_entry_at(file, i);
        bool is_mask = strstr(entry->name, ".attn.bias") != NULL;
        if ((ch->without_masks && is_mask) || (ch->left_out != NULL && strcmp(ch->left_out, entry->name) == 0))
            continue;
        bool is_renamed = ch->renamed != NULL && strcmp(ch->renamed, entry->name) == 0;
        add_entry(&c, file, entry, is_renamed ? "h.0.attn.rotary" : entry->name, ch);
    }
    if (ch->tied_head)
        add_entry(&c, file, bl_safetensors_find(file, "wte.weight"), "lm_head.weight", ch);
    if (ch->other_head)
        add_entry(&c, file, bl_safetensors_find(file, "wpe.weight"), "lm_head.weight", ch);
    assert_int_equal(bl_safetensors_write(written, c.source, c.n, NULL, 0, &error), BELAY_OK);
    bl_safetensors_close(file);
    return written;
}

static void prefix_masks_and_a_tied_head_may_be_there_or_not(void **state)
{
    (void)state;
    const change forms[] = {{.without_masks = true},
                            {.tied_head = true},
                            {.prefixed = true},
                            {.prefixed = true, .tied_head = true},
                            {.prefixed = true, .tied_head = true, .without_masks = true}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        belay_context *context = told_open();
        belay_module *model = make_small(context);
        assert_int_equal(belay_gpt2_load(model, changed(&forms[i])), BELAY_OK);
        expect_logits(context, model);
        told_close(context);
    }
}

/* "'<path>' <words>", or the words alone. */
static void expect_refusal(int line, belay_code code, const char *path, const char *words)
{
    char full[512];
    const char *quote = path[0] != '\0' ? "'" : "", *space = path[0] != '\0' ? " " : "";
    snprintf(full, sizeof full, "%s%s%s%s%s", quote, path, quote, space, words);
    told_expect("belay: %s (%s)\n    called at: test_gpt2.c:%d\n" TOLD_START "%s", full, belay_code_name(code), line,
                told_try(code));
}

static uint64_t hash_of(const belay_module *model)
{
    static float values[VOCABULARY * 24];
    uint64_t hash = 14695981039346656037u;
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++) {
        belay_tensor parameter = belay_module_parameter(model, i);
        int64_t n_bytes = belay_tensor_n_elements(parameter) * (int64_t)sizeof(float);
        assert_int_equal(belay_tensor_read(parameter, values, n_bytes), BELAY_OK);
        for (int64_t b = 0; b < n_bytes; b++)
            hash = (hash ^ ((const unsigned char *)values)[b]) * 1099511628211u;
    }
    return hash;
}

static void what_does_not_fit_is_named_and_no_weight_changes(void **state)
{
    (void)state;
    const struct {
        change change;
        const char *words;
    } all[] = {
        {{.left_out = "h.1.ln_2.bias"}, "does not hold 'h.1.ln_2.bias', which the model has"},
        {{.left_out = "wte.weight"}, "holds 'wpe.weight', which the model does not have"},
        {{.renamed = "h.0.mlp.c_fc.bias"}, "holds 'h.0.attn.rotary', which the model does not have"},
        {{.prefixed = true, .turned = "h.0.mlp.c_fc.weight"},
         "holds 'transformer.h.0.mlp.c_fc.weight' as [96, 24] F32, the model has it as [24, 96] F32"},
        {{.widened = "h.1.attn.c_attn.bias"}, "holds 'h.1.attn.c_attn.bias' as [36] F64, the model has it as [72] F32"},
        {{.other_head = true}, "holds a head of its own, 'lm_head.weight'; the model's is its 'wte.weight'"},
    };
    belay_context *context = told_open();
    belay_module *model = make_small(context);
    uint64_t before = hash_of(model);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const char *path = changed(&all[i].change);
        int line = __LINE__ + 1;
        belay_code code = belay_gpt2_load(model, path);
        assert_int_equal(code, BELAY_FILE_MISMATCH);
        expect_refusal(line, code, path, all[i].words);
        assert_true(hash_of(model) == before);
    }
    int line = __LINE__ + 1;
    assert_int_equal(belay_gpt2_load(model, NULL), BELAY_CONF_MISSING);
    expect_refusal(line, BELAY_CONF_MISSING, "", "gpt2 needs the path of the file to load");
    belay_module *other = belay_dropout_module(context, 0.5);
    line = __LINE__ + 1;
    assert_int_equal(belay_gpt2_load(other, written), BELAY_CONF_VALUE);
    expect_refusal(line, BELAY_CONF_VALUE, "", "module dropout is no gpt2: it has no transformer.wte.weight");
    assert_int_equal(belay_gpt2_load(NULL, written), BELAY_CONF_ORDER);
    belay_faults_clear(context);
    told_close(context);
}

/* Of a model in several files: the index, and one of its parts. */
static void parts_of_a_model_are_refused_by_name(void **state)
{
    (void)state;
    static const char index[] = "{\"metadata\": {\"total_size\": 4}, \"weight_map\": {\"wte.weight\": "
                                "\"model-00001-of-00002.safetensors\"}}\n";
    belay_context *context = told_open();
    belay_module *model = make_small(context);
    uint64_t before = hash_of(model);
    FILE *file = fopen(written, "w");
    assert_non_null(file);
    assert_true(fputs(index, file) >= 0);
    assert_int_equal(fclose(file), 0);
    int line = __LINE__ + 1;
    assert_int_equal(belay_gpt2_load(model, written), BELAY_FILE_FORMAT);
    told_expect(
        "belay: '%s' is no whole safetensors file: it begins with '{', as JSON does (file.format)\n"
        "    called at: test_gpt2.c:%d\n" TOLD_START
        "    try: Name the file that holds the tensors. A model in several files, which an .index.json lists, is "
        "to be joined into one first.\n",
        written, line);
    const char *path = changed(&(change){.prefixed = true, .left_out = "h.1.mlp.c_proj.weight"});
    line = __LINE__ + 1;
    assert_int_equal(belay_gpt2_load(model, path), BELAY_FILE_MISMATCH);
    expect_refusal(line, BELAY_FILE_MISMATCH, path,
                   "does not hold 'transformer.h.1.mlp.c_proj.weight', which the model has");
    assert_true(hash_of(model) == before);
    belay_faults_clear(context);
    told_close(context);
}

/* Names with "transformer.", weights of c_* as [in, out]: what went in comes out. */
static void a_saved_model_has_the_same_names_layouts_and_bytes(void **state)
{
    (void)state;
    bl_error error = {0};
    belay_context *context = told_open();
    belay_module *model = make_small(context);
    assert_int_equal(belay_gpt2_load(model, small), BELAY_OK);
    assert_int_equal(belay_checkpoint_save(model, written, NULL, 0), BELAY_OK);
    bl_safetensors *in = open_file(small), *out = open_file(written);
    int64_t n_masks = 0;
    for (int64_t i = 0; i < bl_safetensors_n_entries(in); i++) {
        char name[96];
        const void *bytes[2];
        int64_t n[2];
        const bl_safetensors_entry *entry = bl_safetensors_entry_at(in, i);
        snprintf(name, sizeof name, "transformer.%s", entry->name);
        const bl_safetensors_entry *saved = bl_safetensors_find(out, name);
        n_masks += saved == NULL;
        if (saved == NULL)
            continue;
        assert_int_equal(saved->rank, entry->rank);
        assert_memory_equal(saved->shape, entry->shape, (size_t)entry->rank * sizeof entry->shape[0]);
        assert_int_equal(bl_safetensors_bytes(in, entry, &bytes[0], &n[0], &error), BELAY_OK);
        assert_int_equal(bl_safetensors_bytes(out, saved, &bytes[1], &n[1], &error), BELAY_OK);
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(bytes[0], bytes[1], (size_t)n[0]);
    }
    assert_int_equal(n_masks, 2);
    assert_int_equal(bl_safetensors_n_entries(out), bl_safetensors_n_entries(in) - 2);
    bl_safetensors_close(in);
    bl_safetensors_close(out);
    told_close(context);
}

static int make_file(void **state)
{
    (void)state;
    int file = mkstemp(written);
    return file < 0 ? -1 : close(file);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_by_its_conventions_gives_pytorchs_logits),
        cmocka_unit_test(prefix_masks_and_a_tied_head_may_be_there_or_not),
        cmocka_unit_test(what_does_not_fit_is_named_and_no_weight_changes),
        cmocka_unit_test(parts_of_a_model_are_refused_by_name),
        cmocka_unit_test(a_saved_model_has_the_same_names_layouts_and_bytes),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
