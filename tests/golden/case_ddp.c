/* SPDX-License-Identifier: Apache-2.0 */
/* Trajectories of two ranks.  The runner starts itself twice under mpirun for such a file (`golden --rank FOLDER FILE
 * [DEVICE]`); each rank computes its part and compares all of the file.  Rank 0 says the bits of what it compared. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <belay/dist.h>

#include "golden/golden.h"

enum { MOST_STEPS = 16, WORLD = 2 };

/* ---- the model: the LSTM classifier, with a second head that a step may leave out ------------------------------------- */

typedef struct two_heads {
    belay_module *embedding, *lstm, *fc, *aux;
    bool uses_aux;
} two_heads;

static belay_tensor two_heads_forward(belay_module *module, belay_tensor ids)
{
    const two_heads *self = belay_module_self(module);
    belay_tensor none = {0}, x = belay_forward(self->embedding, ids);
    belay_tensor h = belay_select(belay_lstm_module_run(self->lstm, x, none, none).h_n, 0, -1);
    belay_tensor logits = belay_forward(self->fc, h);
    return self->uses_aux ? belay_add(logits, belay_forward(self->aux, h)) : logits;
}

static const belay_module_kind two_heads_kind = {"classifier", sizeof(two_heads), two_heads_forward, NULL};

static belay_module *make_model(golden *g, bool has_aux)
{
    int64_t dim = (int64_t)golden_number(g, "dim"), hidden = (int64_t)golden_number(g, "hidden");
    belay_linear_module_options head = {.in = hidden, .out = (int64_t)golden_number(g, "classes")};
    belay_module *module = belay_module_new(g->context, &two_heads_kind);
    two_heads *self = belay_module_self(module);
    if (self == NULL)
        return module;
    self->embedding = belay_module_add_child(
        module, "embedding",
        belay_embedding_module(g->context, &(belay_embedding_module_options){.rows = (int64_t)golden_number(g, "vocab"),
                                                                             .width = dim,
                                                                             .has_padding = true}));
    self->lstm = belay_module_add_child(
        module, "lstm",
        belay_lstm_module(g->context, &(belay_lstm_module_options){
                                          .in = dim, .hidden = hidden, .layers = (int)golden_number(g, "layers")}));
    self->fc = belay_module_add_child(module, "fc", belay_linear_module(g->context, &head));
    if (has_aux)
        self->aux = belay_module_add_child(module, "aux", belay_linear_module(g->context, &head));
    return module;
}

/* ---- a rank ---------------------------------------------------------------------------------------------------------- */

typedef struct ranked {
    golden *g;
    belay_group *group;
    belay_module *model;
    belay_optimizer *optimizer;
    int rank, steps;
    bool has_aux;
    double norm[MOST_STEPS];
    float loss[MOST_STEPS];
} ranked;

/* Row `step` of this rank's part of input.<name>, [world, steps, ...]. */
static belay_tensor part_of(const ranked *r, const char *name, int step)
{
    return belay_select(golden_input_row(r->g, name, r->rank), 0, step);
}

static bool uses_aux(const ranked *r, int step)
{
    const void *bytes;
    const bl_safetensors_entry *entry = r->has_aux ? golden_bytes(r->g, "input.use_aux", &bytes) : NULL;
    return entry != NULL && ((const uint8_t *)bytes)[r->rank * r->steps + step] != 0;
}

static void run_step(ranked *r, int step)
{
    belay_scope scope = belay_scope_open(r->g->context);
    two_heads *self = belay_module_self(r->model);
    self->uses_aux = uses_aux(r, step);
    belay_tensor loss =
        belay_cross_entropy(belay_forward(r->model, part_of(r, "ids", step)), part_of(r, "labels", step), NULL);
    belay_backward(loss);
    if (step == 0)
        golden_check_parameters(r->g, r->model, "grad.", true);
    belay_optimizer_step(r->optimizer);
    r->norm[step] = belay_optimizer_norm_get(r->optimizer);
    r->loss[step] = (float)belay_tensor_item(loss);
    belay_scope_close(scope);
}

/* The losses of all ranks, on each. */
static void check_losses(ranked *r)
{
    golden *g = r->g;
    double all[WORLD * MOST_STEPS];
    float got[WORLD * MOST_STEPS];
    int n = r->steps;
    belay_tensor mine = golden_from(g, BELAY_F32, belay_shape1(n), r->loss, n * (int64_t)sizeof *r->loss);
    belay_tensor whole = golden_from(g, BELAY_F32, belay_shape2(WORLD, n), got, WORLD * n * (int64_t)sizeof *got);
    if (belay_group_all_gather(r->group, mine, whole) != BELAY_OK ||
        belay_tensor_read(whole, got, WORLD * n * (int64_t)sizeof *got) != BELAY_OK) {
        golden_fail(g, "the losses did not come together");
        return;
    }
    for (int i = 0; i < WORLD * n; i++)
        all[i] = (double)got[i];
    golden_check_numbers(g, "output.loss", all, WORLD * n);
}

static void train(ranked *r)
{
    golden *g = r->g;
    belay_adam_options adam = golden_adam_options(g);
    belay_ddp_options ddp = {
        .find_unused_parameters = golden_flag(g, "find_unused_parameters"), .batch = 8, .digest_every = 1};
    belay_device_guard there = golden_there(g);
    r->has_aux = golden_has(g, "input.use_aux");
    r->steps = (int)golden_number(g, "steps");
    r->model = make_model(g, r->has_aux);
    golden_back(there);
    golden_load_parameters(g, r->model);
    belay_reducer *reducer = belay_ddp(r->model, r->group, &ddp);
    r->optimizer = belay_adam(r->model, &adam);
    for (int step = 0; step < r->steps && step < MOST_STEPS; step++)
        run_step(r, step);
    golden_check_numbers(g, "output.clip_norm", r->norm, r->steps);
    check_losses(r);
    golden_check_parameters(g, r->model, "output.final.", false);
    belay_reducer_free(reducer);
}

static void run_rank(golden *g)
{
    bool is_sim = strcmp(g->device, "cpu") != 0;
    ranked r = {.g = g, .group = belay_group_open(g->context, &(belay_group_options){.maker = "mpi"})};
    if (belay_group_size(r.group) != WORLD || belay_group_bind(r.group, is_sim ? "sim" : "cpu") != BELAY_OK) {
        golden_fail(g, "there are %d ranks, not %d", belay_group_size(r.group), WORLD);
        return;
    }
    r.rank = belay_group_rank(r.group);
    g->device = is_sim ? r.rank == 0 ? "sim:0" : "sim:1" : "cpu";
    train(&r);
    belay_group_close(r.group);
    if (r.rank == 0)
        printf("bits %016" PRIx64 "\n", g->bits_told);
}

/* ---- who starts them -------------------------------------------------------------------------------------------------- */

static const char *what_is_absent(void)
{
    char plugin[4096];
    const char *folder = getenv("BELAY_PLUGINS");
    snprintf(plugin, sizeof plugin, "%s/libbelay_mpi.so", folder != NULL ? folder : "");
    if (system("command -v mpirun >/dev/null 2>&1") != 0) /* NOLINT(cert-env33-c): a test asks what is there */
        return "mpirun";
    return folder != NULL && access(plugin, R_OK) != 0 ? "libbelay_mpi.so" : NULL;
}

static void run_ranks(golden *g)
{
    char command[8192], line[512], self[4096] = "";
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    g->absent = what_is_absent();
    if (length <= 0 || g->absent != NULL)
        return;
    snprintf(command, sizeof command,
             "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_enable_recovery=1 "
             "OMPI_MCA_rmaps_base_oversubscribe=1 OMP_NUM_THREADS=1 "
             "ASAN_OPTIONS=$ASAN_OPTIONS:fast_unwind_on_malloc=0 mpirun -n %d '%s' --rank '%s' '%s' %s 2>&1",
             WORLD, self, g->folder, g->label, strcmp(g->device, "cpu") == 0 ? "" : "sim:0");
    FILE *ranks = popen(command, "r"); /* NOLINT(cert-env33-c): a test starts itself */
    bool has_bits = false;
    while (ranks != NULL && fgets(line, sizeof line, ranks) != NULL) {
        if (sscanf(line, "bits %" SCNx64, &g->bits_told) == 1)
            has_bits = true;
        else if (strncmp(line, "FAIL ", 5) == 0)
            golden_fail(g, "a rank says: %.400s", line + 5);
    }
    if (ranks == NULL || pclose(ranks) != 0 || !has_bits)
        golden_fail(g, "the ranks did not end well");
    for (int64_t i = 0; i < bl_safetensors_n_entries(g->file); i++)
        g->is_compared[i] = true; /* by the ranks */
}

static void run(golden *g) { (g->is_rank ? run_rank : run_ranks)(g); }

const golden_op golden_ddp_ops[] = {
    {"train_ddp", .run = run},
    {0},
};
