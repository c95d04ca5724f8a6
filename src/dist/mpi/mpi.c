/* SPDX-License-Identifier: Apache-2.0 */
/* The transport over MPI, a plug-in: libbelay_mpi.so.  MPI is started once in a process and stays; a second group of the
 * process takes it up again.  Every communicator returns its errors; nothing here ends the process, and after a failure
 * nothing is called that would wait for another rank.
 *
 * Sums of f16 and bf16 are made here: both to f32, added, rounded to nearest even.  The largest of floats is NaN where one
 * of them is. */
#include <mpi.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "device/device.h"
#include "dist/transport.h"

enum { BEATS = BL_N_PLANES, N_COMMUNICATORS, TAG = 1, FEW = 2 };

/* Elements or bytes that one call of MPI gets. */
#ifdef BELAY_SMALL
static int64_t piece = 1000;
#else
static int64_t piece = INT64_C(1) << 30;
#endif

typedef struct mpi_request {
    bool is_used;
    int n, n_over; /* parts; of them those that have ended, which come first */
    MPI_Request few[FEW];
    MPI_Request *part; /* `few`, or memory of its own */
} mpi_request;

struct bl_transport {
    bool is_open, is_ours, is_spoiled; /* MPI was started here; a group of it failed */
    MPI_Comm comm[N_COMMUNICATORS];
    bl_transport_place place;
    mpi_request *request;
    int64_t capacity;
};

static bl_transport the;
static bool ops_are_made;
static MPI_Op f16_sum, bf16_sum, f16_max, bf16_max, f32_max, f64_max;

static belay_code fail(int result, const char *call, bl_error *error)
{
    char words[MPI_MAX_ERROR_STRING] = "no words for it";
    int length = 0;
    if (result == MPI_SUCCESS)
        return BELAY_OK;
    MPI_Error_string(result, words, &length);
    bl_error_set(error, BELAY_COMM_FAILED, "MPI: %s failed: %.200s", call, words);
    return BELAY_COMM_FAILED;
}

/* ---- sums and largest of what MPI has no type for -------------------------------------------------------------------- */

/* MPI gives the length by a pointer that it does not promise not to change. */
#define MAKE_OP(name, type, from, to, expression)                                                                      \
    static void name(void *in, void *inout, int *length, MPI_Datatype *datatype)                                       \
    {                                                                                                                  \
        const type *x = in;                                                                                            \
        type *y = inout;                                                                                               \
        (void)datatype;                                                                                                \
        for (int i = 0; i < *length; i++) {                                                                            \
            __auto_type a = from(x[i]);                                                                                \
            __auto_type b = from(y[i]);                                                                                \
            y[i] = to(expression);                                                                                     \
        }                                                                                                              \
    }
#define AS_IT_IS(x) (x)
#define LARGEST     (a != a || a > b ? a : b)
MAKE_OP(add_f16, bl_f16, bl_from_f16, bl_to_f16, a + b)
MAKE_OP(add_bf16, bl_bf16, bl_from_bf16, bl_to_bf16, a + b)
MAKE_OP(most_f16, bl_f16, bl_from_f16, bl_to_f16, LARGEST)
MAKE_OP(most_bf16, bl_bf16, bl_from_bf16, bl_to_bf16, LARGEST)
MAKE_OP(most_f32, float, AS_IT_IS, AS_IT_IS, LARGEST)
MAKE_OP(most_f64, double, AS_IT_IS, AS_IT_IS, LARGEST)

static int make_ops(void)
{
    const struct {
        MPI_User_function *function;
        MPI_Op *op;
    } rows[] = {{add_f16, &f16_sum},    {add_bf16, &bf16_sum}, {most_f16, &f16_max},
                {most_bf16, &bf16_max}, {most_f32, &f32_max},  {most_f64, &f64_max}};
    int result = MPI_SUCCESS;
    for (int i = 0; i < BL_COUNT(rows) && result == MPI_SUCCESS && !ops_are_made; i++)
        result = MPI_Op_create(rows[i].function, 1, rows[i].op);
    ops_are_made = ops_are_made || result == MPI_SUCCESS;
    return result;
}

static MPI_Datatype type_of(belay_dtype dtype)
{
    switch (dtype) {
    case BELAY_F32:
        return MPI_FLOAT;
    case BELAY_F64:
        return MPI_DOUBLE;
    case BELAY_I64:
        return MPI_INT64_T;
    case BELAY_I32:
        return MPI_INT32_T;
    case BELAY_U8:
    case BELAY_BOOL:
        return MPI_UINT8_T;
    default:
        return MPI_UINT16_T;
    }
}

static MPI_Op op_of(belay_dtype dtype, belay_group_op op)
{
    if (op == BELAY_GROUP_OR)
        return MPI_BOR;
    bool is_sum = op == BELAY_GROUP_SUM;
    switch (dtype) {
    case BELAY_F16:
        return is_sum ? f16_sum : f16_max;
    case BELAY_BF16:
        return is_sum ? bf16_sum : bf16_max;
    case BELAY_F32:
        return is_sum ? MPI_SUM : f32_max;
    case BELAY_F64:
        return is_sum ? MPI_SUM : f64_max;
    default:
        return is_sum ? MPI_SUM : MPI_MAX;
    }
}

/* ---- opening --------------------------------------------------------------------------------------------------------- */

/* MPI takes the signals of illegal accesses for itself, to print a stack; the handlers of before come back. */
static const int trapped[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE};

/* On one host Open MPI reads out of the memory of the rank that sends; when that has died, it aborts the one that reads.
 * Through shared memory it is as fast when what is copied at once is longer.  The main thread waits for this one meanwhile,
 * so that nobody reads the environment. */
static void keep_survivors(void)
{
    (void)setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    (void)setenv("OMPI_MCA_btl_vader_max_send_size", "131072", 0);
}

/* Left to itself Open MPI sums what is in place on rank 0 and hands it back: the line carries one direction at a time.
 * Rabenseifner's halving and doubling (2004) uses both, each half of the bytes. */
static void use_both_directions(void) { (void)setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "3", 0); }

static int start(int *level)
{
    struct sigaction before[BL_COUNT(trapped)];
    keep_survivors();
    use_both_directions();
    for (int i = 0; i < BL_COUNT(trapped); i++)
        sigaction(trapped[i], NULL, &before[i]);
    int result = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, level);
    for (int i = 0; i < BL_COUNT(trapped); i++)
        sigaction(trapped[i], &before[i], NULL);
    return result;
}

/* A program that has started MPI by itself must let this thread call it too. */
static belay_code start_or_join(bl_transport *t, bl_error *error)
{
    int is_there = 0, is_over = 0, level = 0;
    MPI_Initialized(&is_there);
    MPI_Finalized(&is_over);
    if (is_over)
        return bl_error_set(error, BELAY_COMM_FAILED, "MPI was ended in this process, and cannot be started again");
    if (!is_there) {
        TRY(fail(start(&level), "MPI_Init_thread", error));
        t->is_ours = true;
        return BELAY_OK;
    }
    TRY(fail(MPI_Query_thread(&level), "MPI_Query_thread", error));
    if (level == MPI_THREAD_MULTIPLE)
        return BELAY_OK;
    bl_error_set(error, BELAY_COMM_FAILED, "this program has started MPI for a single thread");
    bl_error_advise(error, "Let it call MPI_Init_thread with MPI_THREAD_MULTIPLE, or leave MPI to Belay.");
    return BELAY_COMM_FAILED;
}

static belay_code find_place(bl_transport *t, bl_error *error)
{
    bl_transport_place *p = &t->place;
    char words[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Comm host;
    TRY(fail(MPI_Comm_rank(MPI_COMM_WORLD, &p->rank), "MPI_Comm_rank", error));
    TRY(fail(MPI_Comm_size(MPI_COMM_WORLD, &p->size), "MPI_Comm_size", error));
    TRY(fail(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, p->rank, MPI_INFO_NULL, &host),
             "MPI_Comm_split_type", error));
    MPI_Comm_set_errhandler(host, MPI_ERRORS_RETURN);
    TRY(fail(MPI_Comm_rank(host, &p->local_rank), "MPI_Comm_rank", error));
    TRY(fail(MPI_Comm_size(host, &p->local_size), "MPI_Comm_size", error));
    p->leader = p->rank;
    TRY(fail(MPI_Bcast(&p->leader, 1, MPI_INT, 0, host), "MPI_Bcast", error));
    TRY(fail(MPI_Comm_free(&host), "MPI_Comm_free", error));
    if (gethostname(p->host, sizeof p->host) != 0)
        snprintf(p->host, sizeof p->host, "unknown");
    p->host[sizeof p->host - 1] = '\0';
    MPI_Get_library_version(words, &length);
    words[strcspn(words, ",\n")] = '\0';
    snprintf(p->words, sizeof p->words, "%.95s", words);
    return BELAY_OK;
}

static belay_code join_world(bl_transport *t, bl_error *error)
{
    const char *wanted = getenv("BELAY_MPI_PIECE"); /* for tests: the same on all ranks */
    if (wanted != NULL && atoll(wanted) > 0)
        piece = bl_min_i64(atoll(wanted), INT64_C(1) << 30);
    TRY(start_or_join(t, error));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int c = 0; c < N_COMMUNICATORS; c++) {
        TRY(fail(MPI_Comm_dup(MPI_COMM_WORLD, &t->comm[c]), "MPI_Comm_dup", error));
        MPI_Comm_set_errhandler(t->comm[c], MPI_ERRORS_RETURN);
    }
    TRY(fail(make_ops(), "MPI_Op_create", error));
    TRY(find_place(t, error));
    t->is_open = true;
    return BELAY_OK;
}

static belay_code open_mpi(bl_transport **out, bl_transport_place *place, bl_error *error)
{
    bl_transport *t = &the;
    if (t->is_spoiled) {
        bl_error_set(error, BELAY_COMM_FAILED,
                     "a group over MPI failed in this process: MPI cannot be used in it again");
        bl_error_advise(error, "Start the ranks anew.");
        return BELAY_COMM_FAILED;
    }
    if (!t->is_open) {
        belay_code code = join_world(t, error);
        t->is_spoiled = code != BELAY_OK && t->is_ours; /* MPI was started, and for a thread that will have ended */
        if (code != BELAY_OK)
            return code;
    }
    *place = t->place;
    *out = t;
    return BELAY_OK;
}

/* ---- requests -------------------------------------------------------------------------------------------------------- */

static void give_up_request(mpi_request *r)
{
    if (r->part != r->few)
        bl_free(r->part);
    *r = (mpi_request){0};
}

/* A request of so many parts, none of them started; a number below 0 without memory. */
static int take_request(bl_transport *t, int64_t n, bl_error *error)
{
    int64_t number = 0;
    while (number < t->capacity && t->request[number].is_used)
        number++;
    int64_t before = t->capacity;
    bool fits = n <= 1 << 20 && bl_grow(&t->request, &t->capacity, number + 1, sizeof *t->request);
    if (fits && t->capacity > before) {
        memset(t->request + before, 0, (size_t)(t->capacity - before) * sizeof *t->request);
        for (int64_t i = 0; i < before; i++) /* they moved */
            if (t->request[i].is_used && t->request[i].n <= FEW)
                t->request[i].part = t->request[i].few;
    }
    MPI_Request *part = !fits ? NULL
                        : n <= FEW
                            ? t->request[number].few
                            : bl_alloc(n, sizeof *part); // NOLINT(bugprone-sizeof-expression): MPI's is a pointer
    if (part == NULL) {
        bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for an operation between ranks");
        return -1;
    }
    t->request[number] = (mpi_request){.is_used = true, .n = (int)n, .part = part};
    for (int64_t i = 0; i < n; i++)
        part[i] = MPI_REQUEST_NULL;
    return (int)number;
}

static int64_t n_pieces(int64_t n) { return n / piece + (n % piece != 0); }
static int length_of(int64_t n, int64_t number) { return (int)bl_min_i64(piece, n - number * piece); }

static belay_code all_reduce(bl_transport *t, bl_plane plane, void *data, int64_t n, belay_dtype dtype,
                             belay_group_op op, int *request, bl_error *error)
{
    int number = take_request(t, n_pieces(n), error);
    if (number < 0)
        return BELAY_MEM_EXHAUSTED;
    mpi_request *r = &t->request[number];
    for (int i = 0; i < r->n; i++)
        TRY(fail(MPI_Iallreduce(MPI_IN_PLACE, (char *)data + i * piece * belay_dtype_size(dtype), length_of(n, i),
                                type_of(dtype), op_of(dtype, op), t->comm[plane], &r->part[i]),
                 "MPI_Iallreduce", error));
    *request = number;
    return BELAY_OK;
}

static belay_code broadcast(bl_transport *t, bl_plane plane, void *data, int64_t n_bytes, int root, int *request,
                            bl_error *error)
{
    int number = take_request(t, n_pieces(n_bytes), error);
    if (number < 0)
        return BELAY_MEM_EXHAUSTED;
    mpi_request *r = &t->request[number];
    for (int i = 0; i < r->n; i++)
        TRY(fail(
            MPI_Ibcast((char *)data + i * piece, length_of(n_bytes, i), MPI_BYTE, root, t->comm[plane], &r->part[i]),
            "MPI_Ibcast", error));
    *request = number;
    return BELAY_OK;
}

/* What is too long for one call comes from each rank by itself. */
static belay_code gather_pieces(bl_transport *t, bl_plane plane, const void *mine, char *all, int64_t n_bytes,
                                mpi_request *r, bl_error *error)
{
    int64_t n = n_pieces(n_bytes);
    memcpy(all + t->place.rank * n_bytes, mine, (size_t)n_bytes);
    for (int root = 0; root < t->place.size; root++)
        for (int64_t i = 0; i < n; i++)
            TRY(fail(MPI_Ibcast(all + root * n_bytes + i * piece, length_of(n_bytes, i), MPI_BYTE, root, t->comm[plane],
                                &r->part[root * n + i]),
                     "MPI_Ibcast", error));
    return BELAY_OK;
}

static belay_code all_gather(bl_transport *t, bl_plane plane, const void *mine, void *all, int64_t n_bytes,
                             int *request, bl_error *error)
{
    int64_t n = n_pieces(n_bytes);
    int number = take_request(t, n > 1 ? n * t->place.size : n, error);
    if (number < 0)
        return BELAY_MEM_EXHAUSTED;
    mpi_request *r = &t->request[number];
    *request = number;
    if (n > 1)
        return gather_pieces(t, plane, mine, all, n_bytes, r, error);
    if (n == 0)
        return BELAY_OK;
    return fail(MPI_Iallgather(mine, (int)n_bytes, MPI_BYTE, all, (int)n_bytes, MPI_BYTE, t->comm[plane], &r->part[0]),
                "MPI_Iallgather", error);
}

static belay_code send(bl_transport *t, int peer, const void *data, int64_t n_bytes, int *request, bl_error *error)
{
    if ((*request = take_request(t, 1, error)) < 0)
        return BELAY_MEM_EXHAUSTED;
    return fail(MPI_Isend(data, (int)n_bytes, MPI_BYTE, peer, TAG, t->comm[BEATS], &t->request[*request].part[0]),
                "MPI_Isend", error);
}

static belay_code receive(bl_transport *t, int peer, void *data, int64_t n_bytes, int *request, bl_error *error)
{
    if ((*request = take_request(t, 1, error)) < 0)
        return BELAY_MEM_EXHAUSTED;
    MPI_Request *part = t->request[*request].part;
    // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): `test` asks for its end
    int result = MPI_Irecv(data, (int)n_bytes, MPI_BYTE, peer, TAG, t->comm[BEATS], part);
    return fail(result, "MPI_Irecv", error);
}

static belay_code test(bl_transport *t, int request, bool *is_done, bl_error *error)
{
    mpi_request *r = &t->request[request];
    *is_done = false;
    while (r->n_over < r->n) {
        int is_over = 0;
        belay_code code = fail(MPI_Test(&r->part[r->n_over], &is_over, MPI_STATUS_IGNORE), "MPI_Test", error);
        if (code != BELAY_OK || !is_over) {
            *is_done = code != BELAY_OK;
            return code;
        }
        r->n_over++;
    }
    *is_done = true;
    give_up_request(r);
    return BELAY_OK;
}

/* ---- the end --------------------------------------------------------------------------------------------------------- */

/* Messages that nobody will send any more are not waited for. */
static void close_mpi(bl_transport *t, bool whole)
{
    if (!whole) {
        t->is_spoiled = true;
        return;
    }
    for (int64_t i = 0; i < t->capacity; i++) {
        if (!t->request[i].is_used)
            continue;
        for (int p = t->request[i].n_over; p < t->request[i].n; p++)
            if (t->request[i].part[p] != MPI_REQUEST_NULL) {
                MPI_Cancel(&t->request[i].part[p]);
                MPI_Request_free(&t->request[i].part[p]);
            }
        give_up_request(&t->request[i]);
    }
    bl_free(t->request);
    t->request = NULL;
    t->capacity = 0;
}

static void finish(bl_transport *t)
{
    if (t->is_open && t->is_ours && !t->is_spoiled)
        MPI_Finalize();
}

static const bl_transport_api api = {.version = BL_TRANSPORT_VERSION,
                                     .name = "mpi",
                                     .open = open_mpi,
                                     .close = close_mpi,
                                     .all_reduce = all_reduce,
                                     .broadcast = broadcast,
                                     .all_gather = all_gather,
                                     .send = send,
                                     .receive = receive,
                                     .test = test,
                                     .is_lasting = true,
                                     .finish = finish};

__attribute__((visibility("default"))) const bl_transport_api *bl_transport_plugin(void);
const bl_transport_api *bl_transport_plugin(void) { return &api; }
