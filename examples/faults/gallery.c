/* SPDX-License-Identifier: Apache-2.0 */
/* The training of the gallery and its proofs: see gallery.h. */
#include "gallery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_WEIGHTS = 256 };

/* What one training left behind. */
typedef struct outcome {
    float weights[MAX_WEIGHTS];
    bool has_weights;
    int64_t n_applied, n_faults, n_late; /* late: faults behind the injection */
    int status;
    bool is_wrong;
    belay_code code; /* of the first fault */
    bool is_caught;  /* a kernel met it; else the call was refused */
    char named[256];
    char lacks[128];
} outcome;

/* ---- the training ---------------------------------------------------------------------------------------------------- */

/* Samples of a file that has a line for each, the first below a header. */
static belay_code get_sample(void *state, int64_t index, belay_sample *sample)
{
    gallery *g = state;
    sample->ids = g->tokens[index];
    sample->n_ids = SEQUENCE;
    sample->label = g->labels[index];
    sample->file = "words.tsv";
    sample->line = index + 2;
    return BELAY_OK;
}

static void make_data(gallery *g)
{
    for (int s = 0; s < N_BATCHES * SAMPLES; s++) {
        for (int i = 0; i < SEQUENCE; i++)
            g->tokens[s][i] = 1 + (7 * s + 3 * i) % (TOKENS - 1);
        g->labels[s] = s % CLASSES;
    }
}

static void make_model(gallery *g)
{
    belay_device_guard guard = belay_device_guard_open(g->ctx, g->device);
    g->model = belay_text_classifier(g->ctx, &(belay_text_classifier_options){.model = BELAY_TEXT_MEAN,
                                                                              .mean_all = true,
                                                                              .no_hidden = true,
                                                                              .n_tokens = TOKENS,
                                                                              .classes = CLASSES,
                                                                              .embed = 4});
    g->adam = belay_adam(g->model, &(belay_adam_options){.lr = 0.01});
    belay_dataset *data = belay_dataset_callback(g->ctx, N_BATCHES * SAMPLES, get_sample, g,
                                                 &(belay_ids_options){.seq = SEQUENCE, .n_tokens = TOKENS});
    g->batches = belay_loader_new(data, &(belay_loader_options){.batch = SAMPLES});
    belay_device_guard_close(guard);
}

int64_t gallery_sample(int row) { return BAD_BATCH * SAMPLES + row; }

belay_batch gallery_batch(gallery *g)
{
    belay_batch batch = {0};
    belay_device_guard guard = belay_device_guard_open(g->ctx, g->device);
    g->has_batch = true;
    if (!belay_loader_next(g->batches, &batch))
        g->is_wrong = true;
    belay_device_guard_close(guard);
    return batch;
}

void gallery_expect(gallery *g, bool holds) { g->is_wrong = g->is_wrong || !holds; }

static void good_batch(gallery *g)
{
    belay_batch batch = gallery_batch(g);
    belay_backward(belay_cross_entropy(belay_forward(g->model, batch.tokens), batch.labels, NULL));
}

static void read_weights(gallery *g, outcome *out)
{
    int64_t n = 0;
    out->has_weights = true;
    for (int64_t k = 0; k < belay_module_n_parameters(g->model); k++) {
        belay_tensor parameter = belay_module_parameter(g->model, k);
        int64_t n_elements = belay_tensor_n_elements(parameter);
        if (n + n_elements > MAX_WEIGHTS ||
            belay_tensor_read(parameter, out->weights + n, n_elements * (int64_t)sizeof(float)) != BELAY_OK) {
            out->has_weights = false;
            return;
        }
        n += n_elements;
    }
}

/* ---- what the report names ------------------------------------------------------------------------------------------- */

static const struct {
    const char *field, *key;
} fields[] = {
    {"op", "\"op\":"},
    {"layer", "\"layer\":"},
    {"site", "\"site\":"},
    {"surfaced", "\"surfaced\":"},
    {"other site", "\"other_site\":"},
    {"tensor", "\"name\":"},
    {"item", "\"item\":"},
    {"value", "\"got\":"},
    {"bound", "\"limit\":"},
    {"coordinates", "\"at\":"},
    {"count", "\"count\":"},
    {"sample", "\"sample\":"},
    {"step", "\"step\":"},
    {"device", "\"device\":"},
    {"stream", "\"stream\":"},
    {"likely", "\"likely\":"},
};
enum { N_FIELDS = (int)(sizeof fields / sizeof fields[0]) };

static void list_fields(const char *json, outcome *out)
{
    for (int i = 0; i < N_FIELDS; i++)
        if (strstr(json, fields[i].key) != NULL)
            snprintf(out->named + strlen(out->named), sizeof out->named - strlen(out->named), "%s%s",
                     out->named[0] == '\0' ? "" : ", ", fields[i].field);
}

static bool names_field(const char *json, const char *field)
{
    for (int i = 0; i < N_FIELDS; i++)
        if (strcmp(fields[i].field, field) == 0)
            return strstr(json, fields[i].key) != NULL;
    return false;
}

/* A promise is a field, or "field=text": then the text stands in the paragraph. */
static void check_promise(char *promise, const belay_fault *fault, outcome *out)
{
    char *equals = strchr(promise, '=');
    bool holds = equals != NULL ? strstr(fault->text, equals + 1) != NULL : names_field(fault->json, promise);
    if (!holds)
        snprintf(out->lacks, sizeof out->lacks, "%s", promise);
    if (equals != NULL)
        snprintf(out->named + strlen(out->named), sizeof out->named - strlen(out->named), ", %.*s",
                 (int)(equals - promise), promise);
}

static void check_named(const char *promised, const belay_fault *fault, outcome *out)
{
    char words[256], *rest = words;
    snprintf(words, sizeof words, "%s", promised != NULL ? promised : "");
    for (char *promise; (promise = strtok_r(rest, ";", &rest)) != NULL;)
        check_promise(promise, fault, out);
}

/* The first fault of the injection. */
static void look_at_fault(gallery *g, const injection *injected, int64_t before, outcome *out)
{
    belay_fault fault = {.code = g->child_code, .text = "", .json = g->child_json};
    out->n_faults = belay_n_faults(g->ctx) - before;
    if (out->n_faults > 0 && !belay_fault_get(g->ctx, before, &fault))
        return;
    out->code = fault.code;
    out->is_caught = fault.count > 0 || fault.code == BELAY_MEM_REDZONE || fault.code == BELAY_NUM_NONFINITE ||
                     strncmp(fault.text, "belay: kernel ", 14) == 0 || strstr(fault.json, "\"surfaced\":") != NULL;
    if (fault.code != BELAY_OK) {
        list_fields(fault.json, out);
        check_named(injected->named, &fault, out);
        check_named(g->is_sim ? injected->named_on_sim : NULL, &fault, out);
    }
}

/* ---- another process ------------------------------------------------------------------------------------------------- */

static int tell_parent(gallery *g, int to)
{
    belay_fault fault;
    if (!belay_fault_first(g->ctx, &fault))
        return 1;
    g->child_code = fault.code;
    snprintf(g->child_json, sizeof g->child_json, "%s", fault.json);
    return write(to, &g->child_code, sizeof g->child_code) < 0 || write(to, g->child_json, sizeof g->child_json) < 0;
}

void gallery_in_child(gallery *g, void (*use)(gallery *g))
{
    int ends[2], status = 1;
    if (pipe(ends) != 0) {
        g->is_wrong = true;
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        use(g);
        _exit(tell_parent(g, ends[1]));
    }
    close(ends[1]);
    bool is_told = read(ends[0], &g->child_code, sizeof g->child_code) == (ssize_t)sizeof g->child_code &&
                   read(ends[0], g->child_json, sizeof g->child_json) == (ssize_t)sizeof g->child_json;
    close(ends[0]);
    gallery_expect(g, child > 0 && waitpid(child, &status, 0) == child && status == 0 && is_told);
}

/* ---- two trainings, and what they say -------------------------------------------------------------------------------- */

static belay_context *open_context(const injection *injected, bool is_sim, belay_log_function log)
{
    return belay_open(&(belay_options){.device = is_sim ? "sim:0" : "cpu",
                                       .seed = 1,
                                       .threads = 1,
                                       .memory = injected->memory,
                                       .trace_nonfinite = injected->traces_nonfinite,
                                       .log = log});
}

/* One window.  A device that runs at its own pace is waited for, so that every run learns of a fault at the same line. */
static void run_window(gallery *g, void (*run)(gallery *g))
{
    bool waits = g->is_sim && getenv("BELAY_SIM_SEED") == NULL;
    g->has_batch = false;
    if (run != NULL)
        run(g);
    if (waits && belay_synchronise(g->ctx) != BELAY_OK)
        return;
    if (!g->has_batch)
        (void)gallery_batch(g);
    if (run != NULL)
        belay_optimizer_step(g->adam);
}

/* The training, with the injection in place of the bad batch, or without either. */
static outcome train(const char *device, const injection *injected, bool is_clean)
{
    outcome out = {0};
    gallery g = {.device = device, .is_sim = strcmp(device, "cpu") != 0, .value = injected->value};
    g.ctx = open_context(injected, g.is_sim, is_clean ? NULL : belay_log_stderr);
    make_data(&g);
    make_model(&g);
    for (int i = 0; i < N_BATCHES; i++) {
        bool is_bad = i == BAD_BATCH;
        int64_t before = belay_n_faults(g.ctx);
        belay_scope window = belay_scope_open(g.ctx);
        run_window(&g, !is_bad ? good_batch : is_clean ? NULL : injected->run);
        belay_scope_close(window);
        belay_code code = belay_synchronise(g.ctx);
        if (is_bad && !is_clean)
            look_at_fault(&g, injected, before, &out);
        else
            out.n_late += belay_n_faults(g.ctx) - before + (code != BELAY_OK);
        if (code == BELAY_PLACE_LOST)
            break;
    }
    if (!belay_device_is_lost(g.ctx, g.device)) {
        out.n_applied = belay_optimizer_n_applied(g.adam);
        read_weights(&g, &out);
    }
    out.is_wrong = g.is_wrong;
    out.status = belay_close(g.ctx);
    return out;
}

static belay_code wanted_code(const injection *injected, bool is_sim)
{
    if (is_sim ? injected->is_legal_on_sim : injected->is_legal_on_cpu)
        return BELAY_OK;
    return is_sim && injected->on_sim != BELAY_OK ? injected->on_sim : injected->code;
}

static const char *yes_or_no(bool is_lost, bool holds)
{
    return is_lost ? "n/a: the device is lost, status 6" : holds ? "yes" : "NO";
}

static void print_cell(const char *kind, const char *name, const injection *injected, const outcome *with, bool is_lost,
                       bool is_equal)
{
    bool is_alive = with->n_late == 0 && with->n_applied >= N_BATCHES - 1, is_legal = with->code == BELAY_OK;
    printf("cell: %s | %s | %s | ", kind, injected->what, name);
    printf("%s%s | ",
           is_legal          ? "legal"
           : with->is_caught ? "caught: "
                             : "refused: ",
           is_legal ? ", result right" : belay_code_name(with->code));
    printf("%s | ", is_legal ? "n/a: nothing to name" : with->named);
    printf("%s | %s\n", yes_or_no(is_lost, is_alive), yes_or_no(is_lost, is_equal));
}

static int check(const char *kind, const char *name, const char *device, const injection *injected)
{
    bool is_sim = strcmp(device, "cpu") != 0, is_lost = is_sim && injected->loses_device;
    belay_code wanted = wanted_code(injected, is_sim);
    outcome clean = train(device, injected, true), with = train(device, injected, false);
    bool is_alive = with.n_late == 0 && with.n_applied >= N_BATCHES - 1;
    bool is_equal = with.has_weights && memcmp(with.weights, clean.weights, sizeof clean.weights) == 0;
    bool holds = with.code == wanted && !with.is_wrong && with.lacks[0] == '\0' && clean.has_weights &&
                 clean.status == 0 && (is_lost ? with.status == 6 : is_alive && is_equal);
    print_cell(kind, name, injected, &with, is_lost, is_equal);
    if (!holds)
        printf("broken: got %s, wanted %s; wrong result %d; lacks \"%s\"; %d faults, %d late, %d steps, status %d\n",
               belay_code_name(with.code), belay_code_name(wanted), with.is_wrong, with.lacks, (int)with.n_faults,
               (int)with.n_late, (int)with.n_applied, with.status);
    return holds ? 0 : 1;
}

int gallery_main(int argc, char **argv, const char *kind, const injection *injections, int n)
{
    const char *name = argc > 1 ? argv[1] : "cpu", *device = name;
    int failed = 0;
    if (strcmp(name, "sim") == 0) {
        setenv("BELAY_SIM_SEED", "1", 1);
        device = "sim:0";
    }
    if (argc > 2 || (strcmp(device, "cpu") != 0 && strcmp(device, "sim:0") != 0 && strcmp(device, "sim:1") != 0)) {
        fprintf(stderr, "usage: %s [cpu | sim:1 | sim]\n", argv[0]);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < n; i++)
        failed |= check(kind, name, device, &injections[i]);
    return failed;
}
