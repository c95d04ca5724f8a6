/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of tools: which lines belong together, and what kind of fault they show. */
#include "derive_support.h"

static void derive_of(told_case *told, const char *text)
{
    tell_text(told, text);
    bl_derive_tools(&told->c);
}

/* ---- compute-sanitizer ---------------------------------------------------------------------------------------------- */

#define REPORT(access, at, address, near)                                                                              \
    "========= Invalid " access "\n=========     at " at "\n=========     by thread (3,2,0) in block (1,0,0)\n"        \
    "=========     Address " address "\n=========     and is " near "\n========= \n"

typedef struct sanitizer_row {
    const char *text;
    bl_signal signal;
    const char *kernel; /* NULL: not asked */
} sanitizer_row;

static const sanitizer_row sanitizer_rows[] = {
    {REPORT("__global__ read of size 16 bytes", "softmax5(float *, float, int)+0x4e0 in /src/train.cu:512",
            "0x7f48c6c006e0 is out of bounds",
            "33 bytes after the nearest allocation at 0x7f48c6c00000 of size 1,728 bytes"),
     BL_SIGNAL_memcheck_near, "softmax5"},
    {REPORT("__global__ write of size 4 bytes", "fill(float *)+0x10", "0x7f48c6bfffc0 is out of bounds",
            "64 bytes before the nearest allocation at 0x7f48c6c00000 of size 1,024 bytes"),
     BL_SIGNAL_memcheck_near, "fill"},
    {REPORT("__global__ read of size 4 bytes",
            "void at::native::<unnamed>::ctc_loss_log_alpha_gpu_kernel<float, long>(T1 *, const long *)+0x1b70",
            "0x7fb93ce0004c is out of bounds",
            "8,589,902,669 bytes after the nearest allocation at 0x7fb73ce00000 of size 32,000 bytes"),
     BL_SIGNAL_memcheck_target, "ctc_loss_log_alpha_gpu_kernel"},
    {REPORT("__global__ read of size 2 bytes",
            "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::Half, long, (int)2>(long)+0x1b70",
            "0x7fb93ce0004c is out of bounds",
            "589,902,669 bytes after the nearest allocation at 0x7fb73ce00000 of size 32,000 bytes"),
     BL_SIGNAL_memcheck_embedding, "indexSelectLargeIndex"},
    {REPORT("__global__ atomic of size 4 bytes", "_Z16scatter_add_rowsPfPKi+0x10", "0x7fb93ce0004c is out of bounds",
            "589,902,669 bytes after the nearest allocation at 0x7fb73ce00000 of size 32,000 bytes"),
     BL_SIGNAL_memcheck_gather, "scatter_add_rows"},
    {REPORT("__global__ write of size 4 bytes", "_ZN3lib6detail4walkEPf+0x10", "0x7fb93ce0004c is out of bounds",
            "589,902,669 bytes after the nearest allocation at 0x7fb73ce00000 of size 32,000 bytes"),
     BL_SIGNAL_memcheck_wild, "walk"},
    {REPORT("__global__ write of size 4 bytes", "copy_rows(float *, long)+0x90", "0x7f9e80000000 is out of bounds",
            "6,442,450,944 bytes before the nearest allocation at 0x7fa000000000 of size 9,437,184,000 bytes"),
     BL_SIGNAL_memcheck_wrapped, "copy_rows"},
    {REPORT("__global__ read of size 4 bytes", "saxpy(float *)+0x90", "0x55d0c41a2b30 is out of bounds",
            "45,210,131,435,728 bytes before the nearest allocation at 0x7fa000000000 of size 2,097,152 bytes"),
     BL_SIGNAL_memcheck_host, "saxpy"},
    {REPORT("__global__ read of size 4 bytes", "saxpy(float *)+0x90", "0x8 is out of bounds",
            "140,192,123,551,736 bytes before the nearest allocation at 0x7fa000000000 of size 2,097,152 bytes"),
     BL_SIGNAL_memcheck_null, "saxpy"},
    {REPORT("__global__ write of size 256 bytes", "bulk(unsigned char *)+0x150", "0x153a273fff80 is out of bounds",
            "inside the nearest allocation at 0x153a26000000 of size 20,971,520 bytes"),
     BL_SIGNAL_memcheck_straddle, "bulk"},
    {REPORT("__global__ read of size 16 bytes", "void pack<__half, (int)8>(const T1 *)+0x1a0 in pack.cu:44",
            "0x7f11d82007fe is misaligned", "inside the nearest allocation at 0x7f11d8200000 of size 8,382,464 bytes"),
     BL_SIGNAL_sanitizer_misaligned, "pack"},
    {"========= Invalid __shared__ write of size 4 bytes\n=========     at gemv(float *)+0xa40 in gemv.cu:117\n"
     "=========     by thread (0,0,0) in block (0,0,0)\n=========     Address 0x0 is out of bounds\n",
     BL_SIGNAL_memcheck_shared, "gemv"},
    {"========= Invalid __local__ write of size 4 bytes\n=========     at topk(float *)+0xa40\n"
     "=========     Address 0xfffdc0 is out of bounds\n",
     BL_SIGNAL_memcheck_local, "topk"},
    /* cuda-memcheck: another order, no block told */
    {"========= Invalid __global__ read of size 4\n=========     at 0x00000148 in "
     "/src/embed.cu:88:embedding_fwd(float*)\n"
     "=========     by thread (5,0,0) in block (0,0,0)\n=========     Address 0x500300020 is out of bounds\n",
     BL_SIGNAL_memcheck_embedding, "embedding_fwd"},
    {"========= Invalid __global__ read of size 4\n", BL_SIGNAL_memcheck_wild, NULL},
};

static void a_report_is_judged_by_kernel_distance_and_address(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sanitizer_rows / sizeof sanitizer_rows[0]; i++) {
        const sanitizer_row *row = &sanitizer_rows[i];
        told_case told;
        derive_of(&told, row->text);
        const bl_event *event = seen(&told, row->signal);
        if (event == NULL)
            fail_msg("row %zu is not %s", i, bl_signals[row->signal].name);
        if (row->kernel != NULL && row->signal != BL_SIGNAL_sanitizer_named)
            assert_fact(event, "kernel", row->kernel);
        forget_texts(&told);
    }
}

static void a_report_tells_its_numbers_without_commas(void **state)
{
    told_case told;
    (void)state;
    derive_of(&told, sanitizer_rows[0].text);
    const bl_event *event = seen(&told, BL_SIGNAL_memcheck_near);
    assert_fact(event, "source_line", "train.cu:512");
    assert_fact(event, "access", "read");
    assert_fact(event, "access_bytes", "16");
    assert_fact(event, "allocation_bytes", "1728");
    assert_fact(event, "distance_bytes", "33");
    assert_fact(event, "address", "0x7f48c6c006e0");
    assert_int_equal(event->line, 1);
    forget_texts(&told);
}

/* Two ranks write at once: the lines of each are taken for its own report. */
static void lines_of_two_ranks_are_not_mixed(void **state)
{
    told_case told;
    (void)state;
    derive_of(
        &told,
        "[rank0]: ========= Invalid __global__ read of size 4 bytes\n"
        "[rank1]: ========= Invalid __global__ read of size 8 bytes\n"
        "[rank1]: =========     at void gather_k(float *)+0x4e0 in g.cu:1\n"
        "[rank0]: =========     at rowsum(float *)+0x4e0 in r.cu:2\n"
        "[rank1]: =========     Address 0x7f58c6c006e0 is out of bounds\n"
        "[rank0]: =========     Address 0x7f48c6c006e0 is out of bounds\n"
        "[rank0]: =========     and is 33 bytes after the nearest allocation at 0x7f48c6c00000 of size 64 bytes\n");
    const bl_event *near = seen(&told, BL_SIGNAL_memcheck_near), *gather = seen(&told, BL_SIGNAL_memcheck_gather);
    assert_fact(near, "kernel", "rowsum");
    assert_int_equal(near->rank, 0);
    assert_fact(gather, "kernel", "gather_k");
    assert_int_equal(gather->rank, 1);
    assert_null(bl_event_get(gather, "distance_bytes"));
    forget_texts(&told);
}

#define BORDER                                                                                                         \
    REPORT("__global__ write of size 256 bytes", "bulk(unsigned char *)+0x150", "0x153a273fff80 is out of bounds",     \
           "inside the nearest allocation at 0x153a26000000 of size 20,971,520 bytes")

static void a_report_at_a_border_of_expandable_segments_may_be_a_false_alarm(void **state)
{
    told_case told;
    (void)state;
    derive_of(&told, "$ PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True compute-sanitizer python t.py\n" BORDER
                     "$ PYTORCH_CUDA_ALLOC_CONF= compute-sanitizer python t.py\n========= ERROR SUMMARY: 0 errors\n");
    assert_fact(seen(&told, BL_SIGNAL_memcheck_border), "clean_without", "true");
    assert_null(seen(&told, BL_SIGNAL_memcheck_straddle));
    forget_texts(&told);
}

static void a_report_that_stays_without_expandable_segments_is_none(void **state)
{
    told_case told;
    (void)state;
    derive_of(&told, "$ PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True compute-sanitizer python t.py\n" BORDER
                     "$ PYTORCH_CUDA_ALLOC_CONF= compute-sanitizer python t.py\n" BORDER);
    assert_null(seen(&told, BL_SIGNAL_memcheck_border));
    assert_non_null(seen(&told, BL_SIGNAL_memcheck_straddle));
    forget_texts(&told);
}

static void no_errors_beside_a_failed_program_are_told_as_blind(void **state)
{
    told_case told;
    (void)state;
    derive_of(&told, "========= COMPUTE-SANITIZER\nRuntimeError: CUDA error: an illegal memory access was encountered\n"
                     "========= ERROR SUMMARY: 0 errors\n");
    assert_non_null(seen(&told, BL_SIGNAL_memcheck_blind));
    forget_texts(&told);
    derive_of(&told, "========= COMPUTE-SANITIZER\nstep 1 loss 2.0\n========= ERROR SUMMARY: 0 errors\n");
    assert_null(seen(&told, BL_SIGNAL_memcheck_blind));
    forget_texts(&told);
}

static void a_tool_that_never_attached_is_told(void **state)
{
    told_case told;
    (void)state;
    derive_of(&told, "========= COMPUTE-SANITIZER\n"
                     "========= Error: No attachable process found. compute-sanitizer timed-out.\n");
    assert_fact(seen(&told, BL_SIGNAL_sanitizer_unseen), "attached", "false");
    forget_texts(&told);
}

/* ---- debuggers and dumps ------------------------------------------------------------------------------------------------ */

#define SHARED_STORE                                                                                                   \
    "CUDA Exception: Warp Out of range Address\n"                                                                      \
    "#0  0x7f2d6cfe1b70 in topk512(float const*, int*)<<<(64,1,1),(512,1,1)>>> () at topk.cu:41\n"                     \
    "(cuda-gdb) x/2i $errorpc\n*> 0x7f2d6cfe1b40 <_Z7topk512PKfPi+2880>:\tSTS [R14+0x400], R9\n"

static void a_store_to_shared_memory_tells_kernel_and_offset(void **state)
{
    told_case told;
    (void)state;
    derive_of(&told, SHARED_STORE "(cuda-gdb) p/x $R14\n$1 = 0x9c00\n");
    const bl_event *event = seen(&told, BL_SIGNAL_exception_shared);
    assert_fact(event, "kernel", "topk512");
    assert_fact(event, "instruction", "STS");
    assert_fact(event, "shared_offset", "40960");
    assert_fact(event, "source_line", "topk.cu:41");
    forget_texts(&told);
}

static void the_value_of_another_register_is_not_taken(void **state)
{
    told_case told;
    (void)state;
    derive_of(&told, SHARED_STORE "(cuda-gdb) p/x $R15\n$1 = 0x9c00\n");
    assert_null(bl_event_get(seen(&told, BL_SIGNAL_exception_shared), "shared_offset"));
    forget_texts(&told);
}

static void a_dump_in_another_file_tells_the_kernel(void **state)
{
    static const char *const texts[] = {
        "[23:13:57.246693] coredump: Detected an exception of type CUDBG_EXCEPTION_WARP_OUT_OF_RANGE_ADDRESS (5)\n",
        "0x7f2d6cfe1b70 in topk512(float const*, int*)<<<(64,1,1),(512,1,1)>>> ()\n"};
    told_case told;
    (void)state;
    tell_texts(&told, 2, texts);
    bl_derive_tools(&told.c);
    assert_fact(seen(&told, BL_SIGNAL_exception_window), "kernel", "topk512");
    assert_fact(seen(&told, BL_SIGNAL_exception_window), "exception_number", "5");
    forget_texts(&told);
}

typedef struct exception_row {
    const char *text;
    bl_signal signal;
} exception_row;

static void an_exception_is_judged_by_its_words_and_its_instruction(void **state)
{
    static const exception_row rows[] = {
        {"CUDA Exception: Warp Misaligned Address\n", BL_SIGNAL_exception_misaligned},
        {"CUDA Exception: Lane User Stack Overflow\n", BL_SIGNAL_exception_stack},
        {"Thread 1 \"t\" received signal CUDA_EXCEPTION_14, Warp Illegal Address.\n", BL_SIGNAL_exception_global},
        {"CUDA Exception: Warp Illegal Instruction\n", BL_SIGNAL_exception_other},
        {"CUDA Exception: Warp Out-of-range Address\n=> 0x7f0 <k+8>:\tLDL R4, [R1+0x8]\n", BL_SIGNAL_exception_local},
        {"CUDA Exception: Warp Illegal Address\n#0  0x1 in embedding_bag(float*)<<<(1,1,1),(32,1,1)>>> ()\n",
         BL_SIGNAL_exception_embedding},
    };
    told_case told;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        derive_of(&told, rows[i].text);
        if (seen(&told, rows[i].signal) == NULL)
            fail_msg("%s is not %s", rows[i].text, bl_signals[rows[i].signal].name);
        forget_texts(&told);
    }
    derive_of(&told, "CUDA Exception: Warp Assert\n");
    assert_null(seen(&told, BL_SIGNAL_coredump_named));
    forget_texts(&told);
}

/* ---- stacks --------------------------------------------------------------------------------------------------------------- */

#define WAITS(n)                                                                                                       \
    "Thread " n " (Thread 0x7f (LWP 51) \"t\"):\n#0  0x7f in clock_gettime ()\n"                                       \
    "#2  0x7f in cudaStreamSynchronize () from libcudart.so\n"
#define FREES                                                                                                          \
    "Thread 7 (Thread 0x7f (LWP 53) \"t\"):\n#1  0x7f in cuMemFreeHost () from libcuda.so.1\n"                         \
    "#2  0x7f in cudaFreeHost () from libcudart.so\n#4  0x45 in loop (dev=2) at train.cc:233\n"

static void a_thread_that_frees_while_others_wait_in_a_collective_is_told(void **state)
{
    told_case told;
    (void)state;
    derive_of(&told, WAITS("9") "#3  0x45 in loop (dev=0) at train.cc:219  (after ncclAllReduce)\n" WAITS("8") FREES);
    const bl_event *blocked = seen(&told, BL_SIGNAL_stack_blocked), *waits = seen(&told, BL_SIGNAL_stack_waits);
    assert_fact(blocked, "blocked_call", "cuMemFreeHost");
    assert_fact(blocked, "thread", "7");
    assert_fact(blocked, "device", "2");
    assert_fact(waits, "waiting_call", "cudaStreamSynchronize");
    assert_fact(waits, "waiting_threads", "2");
    forget_texts(&told);
}

static void without_a_collective_a_waiting_thread_says_nothing(void **state)
{
    told_case told;
    (void)state;
    derive_of(&told, WAITS("9") WAITS("8") FREES);
    assert_null(seen(&told, BL_SIGNAL_stack_blocked));
    forget_texts(&told);
}

/* ---- races and MPI --------------------------------------------------------------------------------------------------------- */

static void a_data_race_tells_both_streams_and_operations(void **state)
{
    told_case told;
    (void)state;
    derive_of(&told, "CSAN detected a possible data race on tensor with data pointer 140237118537728\n"
                     "Access by stream 94319551201264 during kernel:\n"
                     "aten::copy_(Tensor(a!) self, Tensor src) -> Tensor(a!)\nwriting to argument(s) self\n"
                     "  File \"/opt/site-packages/torch/cuda/_sanitizer.py\", line 590, in __torch_dispatch__\n"
                     "  File \"/workspace/ddp/prefetch.py\", line 41, in preload\n"
                     "Previous access by stream 0 during kernel:\n"
                     "aten::convolution(Tensor input) -> Tensor\nreading from argument(s) input\n"
                     "Tensor was allocated with stack trace:\n  File \"/workspace/a.py\", line 2, in b\n");
    const bl_event *event = seen(&told, BL_SIGNAL_csanrace_pair);
    assert_fact(event, "data_ptr", "140237118537728");
    assert_fact(event, "stream_write", "94319551201264");
    assert_fact(event, "op_write", "aten::copy_");
    assert_fact(event, "stream_read", "0");
    assert_fact(event, "op_read", "aten::convolution");
    assert_fact(event, "place", "prefetch.py:41");
    forget_texts(&told);
}

#define IN_MPI(address)                                                                                                \
    "[n1:77] Signal: Segmentation fault (11)\n[n1:77] Failing at address: " address "\n"                               \
    "[n1:77] [ 2] /opt/libopen-pal.so.40(opal_datatype_copy_content_same_ddt+0x171)[0x7f]\n"                           \
    "[n1:77] [ 6] /opt/libmpi.so.40(MPI_Alltoall+0x13b)[0x7f]\n"

static void a_signal_in_a_copy_of_mpi_is_told_with_its_call(void **state)
{
    told_case told;
    (void)state;
    derive_of(&told, IN_MPI("0x7f0b5ea00000"));
    const bl_event *event = seen(&told, BL_SIGNAL_mpicopy_seen);
    assert_fact(event, "function", "MPI_Alltoall");
    assert_fact(event, "frame", "opal_datatype_copy_content_same_ddt");
    assert_fact(event, "address", "0x7f0b5ea00000");
    forget_texts(&told);
}

static void an_mpi_without_cuda_support_settles_it_and_a_null_pointer_denies_it(void **state)
{
    told_case told;
    (void)state;
    derive_of(&told, IN_MPI("0x7f0b5ea00000") "mca:mpi:base:param:mpi_built_with_cuda_support:value:false\n");
    assert_non_null(seen(&told, BL_SIGNAL_mpicopy_unaware));
    forget_texts(&told);
    derive_of(&told, IN_MPI("(nil)"));
    assert_null(seen(&told, BL_SIGNAL_mpicopy_seen));
    forget_texts(&told);
}

static void hostile_reports_are_survived(void **state)
{
    static const char *const texts[] = {
        ("========= Invalid __global__ read of size 99999999999999999999999999999\n"
         "=========     at _Z99999999999999999999x+0x1\n"
         "=========     Address 0xffffffffffffffffffffffff is out of bounds\n"
         "=========     and is 9,999,999,999,999,999,999,999 bytes after the nearest allocation at 0x0 of size 0 "
         "bytes\n"),
        "========= Invalid __shared__ write of size 0\n=========     at <<<<<<<<(((((\n",
        ("CUDA Exception: Warp Out-of-range Address\n=> 0x1 <k>:\tSTS [R1+-0xffffffffffffffffff], R2\n$1 = "
         "99999999999999999999\n"),
        "CSAN detected a possible data race on tensor with data pointer 1\n", "Signal: Segmentation fault (11)\n"};
    told_case told;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        derive_of(&told, texts[i]);
        assert_false(bl_events_lack_memory(told.c.events));
        forget_texts(&told);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_is_judged_by_kernel_distance_and_address),
        cmocka_unit_test(a_report_tells_its_numbers_without_commas),
        cmocka_unit_test(lines_of_two_ranks_are_not_mixed),
        cmocka_unit_test(a_report_at_a_border_of_expandable_segments_may_be_a_false_alarm),
        cmocka_unit_test(a_report_that_stays_without_expandable_segments_is_none),
        cmocka_unit_test(no_errors_beside_a_failed_program_are_told_as_blind),
        cmocka_unit_test(a_tool_that_never_attached_is_told),
        cmocka_unit_test(a_store_to_shared_memory_tells_kernel_and_offset),
        cmocka_unit_test(the_value_of_another_register_is_not_taken),
        cmocka_unit_test(a_dump_in_another_file_tells_the_kernel),
        cmocka_unit_test(an_exception_is_judged_by_its_words_and_its_instruction),
        cmocka_unit_test(a_thread_that_frees_while_others_wait_in_a_collective_is_told),
        cmocka_unit_test(without_a_collective_a_waiting_thread_says_nothing),
        cmocka_unit_test(a_data_race_tells_both_streams_and_operations),
        cmocka_unit_test(a_signal_in_a_copy_of_mpi_is_told_with_its_call),
        cmocka_unit_test(an_mpi_without_cuda_support_settles_it_and_a_null_pointer_denies_it),
        cmocka_unit_test(hostile_reports_are_survived),
    };
    return cmocka_run_group_tests(tests, open_matcher, close_matcher);
}
