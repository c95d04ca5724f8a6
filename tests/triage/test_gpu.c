/* SPDX-License-Identifier: Apache-2.0 */
/* Events of kernel logs fold into incidents, GPUs are judged by them, and errors of applications find theirs. */
#include "kernel_support.h"

#include "base/checked.h"
#include "base/memory.h"

#define FOLD(fold, ...)                                                                                                \
    do {                                                                                                               \
        static const char *const lines_[] = {__VA_ARGS__};                                                             \
        fold_lines(fold, 0, lines_, BL_COUNT(lines_));                                                                 \
    } while (0)

static bl_gpu_fold *fold;
static const bl_gpu_verdict *verdicts;

static int open_fold(void **state)
{
    (void)state;
    fold = bl_gpu_fold_new();
    return fold == NULL;
}

static int close_fold(void **state)
{
    (void)state;
    bl_gpu_fold_free(fold);
    return 0;
}

static int judge(void) { return bl_gpu_judge(fold, NULL, &verdicts); }

/* The verdict about an address, which there must be. */
static const bl_gpu_verdict *verdict_of(const char *pci)
{
    char words[BL_PCI_WORDS];
    int n = judge();
    for (int i = 0; i < n; i++)
        if (strcmp(bl_pci_describe(verdicts[i].pci, words), pci) == 0)
            return &verdicts[i];
    fail_msg("no verdict about %s", pci);
    return NULL;
}

static void assert_codes(const bl_gpu_verdict *v, const char *expected)
{
    char words[200] = "";
    for (int i = 0; i < v->n_codes; i++)
        snprintf(words + strlen(words), sizeof words - strlen(words), "%s%lld", i > 0 ? " " : "",
                 (long long)v->codes[i]);
    assert_string_equal(words, expected);
}

/* "role:line role:line" of the evidence. */
static void assert_lines(const bl_gpu_verdict *v, const char *expected)
{
    static const char roles[] = "OCASXRE";
    char words[400] = "";
    for (int i = 0; i < v->n_lines; i++)
        snprintf(words + strlen(words), sizeof words - strlen(words), "%s%c%lld", i > 0 ? " " : "",
                 roles[v->lines[i].role], (long long)v->lines[i].place.line);
    assert_string_equal(words, expected);
}

/* ---- the ten example lines --------------------------------------------------------------------------------------- */

static void the_ten_lines_are_four_verdicts_and_a_switch(void **state)
{
    (void)state;
    fold_lines(fold, 0, ten_lines, BL_COUNT(ten_lines));
    assert_int_equal(judge(), 4);
    const bl_gpu_verdict *v = verdict_of("0000:3b:00");
    assert_int_equal(v->class, BL_GPU_CLASS_APPLICATION);
    assert_string_equal(v->uuid, "GPU-5e1f0a2c-1111-2222-3333-444455556666");
    assert_int_equal(v->n_incidents, 1);
    assert_codes(v, "31 45");
    assert_lines(v, "O2");
    assert_int_equal(v->n_echoes, 1);
    assert_int_equal(v->echoes[0].place.line, 3);
    v = verdict_of("0000:5e:00");
    assert_int_equal(v->class, BL_GPU_CLASS_APPLICATION);
    assert_string_equal(v->origin->name, "my job, v2");
    assert_int_equal(v->origin->gi, 5);
    v = verdict_of("0000:86:00");
    assert_int_equal(v->class, BL_GPU_CLASS_HARDWARE);
    assert_true(v->is_settled);
    assert_int_equal(v->decisive_code, 48);
    assert_int_equal(v->severity, BL_XID_SEVERITY_NODE);
    assert_lines(v, "O5 C6 R7");
    v = verdict_of("0018:01:00");
    assert_int_equal(v->class, BL_GPU_CLASS_LINK);
    assert_int_equal(v->origin->look, BL_XID_LOOK_PEER);
    assert_int_equal(v->action, BL_RECOVERY_GPU_RESET);
    assert_int_equal(v->severity, BL_XID_SEVERITY_GPU);
    assert_lines(v, "O8 A9");
    assert_int_equal(verdicts[0].class, BL_GPU_CLASS_HARDWARE);
    const bl_gpu_switch *switches;
    assert_int_equal(bl_gpu_switches(fold, &switches), 1);
    assert_int_equal(switches[0].code, 20034);
    assert_false(switches[0].is_joined);
}

/* ---- folding --------------------------------------------------------------------------------------------------------- */

static void echoes_fold_into_the_first_xid_of_their_process(void **state)
{
    (void)state;
    FOLD(fold,
         "[ 10.000000] NVRM: Xid (PCI:0000:01:00): 13, pid=5, name=a, Graphics SM Warp Exception on (GPC 1, TPC 3, SM "
         "0): "
         "Misaligned Address",
         "[ 10.000100] NVRM: Xid (PCI:0000:01:00): 13, pid=5, name=a, Graphics Exception: ESR 0x50dfb0=0x1000f",
         "[ 10.100000] NVRM: Xid (PCI:0000:01:00): 43, pid=5, name=a, Ch 00000010",
         "[ 14.000000] NVRM: Xid (PCI:0000:01:00): 45, pid=5, name=a, Ch 00000011",
         "[ 14.000000] NVRM: Xid (PCI:0000:01:00): 174, pid=5, name=a, Ch 00000011");
    const bl_gpu_verdict *v = verdict_of("0000:01:00");
    assert_int_equal(v->n_incidents, 1);
    assert_int_equal(v->class, BL_GPU_CLASS_APPLICATION);
    assert_int_equal(v->origin->sm_reason, BL_SM_MISALIGNED);
    assert_int_equal(v->n_echoes_all, 3);
    assert_lines(v, "O1 C2");
    assert_string_equal(v->origin->text, "Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Misaligned Address");
}

static void faults_of_two_processes_are_two_incidents(void **state)
{
    (void)state;
    FOLD(fold, "[ 10.000000] NVRM: Xid (PCI:0000:01:00): 31, pid=5, name=a, Ch 00000010, intr 0",
         "[ 10.000100] NVRM: Xid (PCI:0000:01:00): 31, pid=6, name=b, Ch 00000020, intr 0",
         "[ 10.000200] NVRM: Xid (PCI:0000:01:00): 43, pid=5, name=a, Ch 00000010",
         "[ 10.000300] NVRM: Xid (PCI:0000:01:00): 43, pid=6, name=b, Ch 00000020");
    const bl_gpu_verdict *v = verdict_of("0000:01:00");
    assert_int_equal(v->n_incidents, 2);
    assert_int_equal(v->n_pids, 2);
    assert_int_equal(v->incidents[0]->n_echoes_all, 1);
    assert_int_equal(v->incidents[1]->n_echoes_all, 1);
}

static void instances_of_one_gpu_keep_their_faults_apart(void **state)
{
    (void)state;
    FOLD(fold, "[ 10.000000] NVRM: Xid (PCI:0000:01:00 GPU-I:03 GPU-CI:00): 31, Ch 00000010, intr 0",
         "[ 10.000100] NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 43, Ch 00000010");
    assert_int_equal(verdict_of("0000:01:00")->n_incidents, 2);
}

static void an_echo_that_comes_first_steps_back(void **state)
{
    (void)state;
    FOLD(fold, "[ 10.000000] NVRM: Xid (PCI:0000:01:00): 45, pid=5, name=a, Ch 00000010",
         "[ 10.000100] NVRM: Xid (PCI:0000:01:00): 31, pid=5, name=a, Ch 00000010, intr 0");
    const bl_gpu_verdict *v = verdict_of("0000:01:00");
    assert_int_equal(v->n_incidents, 1);
    assert_int_equal(v->origin->code, 31);
    assert_codes(v, "31 45");
    assert_int_equal(v->n_echoes_all, 1);
}

static void details_of_48_attach_to_it_from_either_side(void **state)
{
    (void)state;
    FOLD(fold, "[ 10.000000] NVRM: Xid (PCI:0000:01:00): 171, Uncorrectable DRAM error",
         "[ 10.000100] NVRM: Xid (PCI:0000:01:00): 48, pid=5, name=a, An uncorrectable double bit error (DBE) has been "
         "detected",
         "[ 12.000000] NVRM: Xid (PCI:0000:01:00): 172, Uncorrectable SRAM error");
    const bl_gpu_verdict *v = verdict_of("0000:01:00");
    assert_int_equal(v->n_incidents, 1);
    assert_int_equal(v->decisive_code, 48);
    assert_codes(v, "171 48 172");
}

static void a_named_cause_that_is_not_in_the_log_is_kept(void **state)
{
    (void)state;
    FOLD(fold, "[ 10.000000] NVRM: Xid (PCI:0000:01:00): 45, pid=5, name=a, Ch 00000010 caused by previous Xid 149");
    const bl_gpu_verdict *v = verdict_of("0000:01:00");
    assert_int_equal(v->class, BL_GPU_CLASS_NONE);
    assert_int_equal(v->origin->cause, 149);
}

static void lines_without_times_fold_by_process(void **state)
{
    (void)state;
    FOLD(fold, "NVRM: Xid (PCI:0000:01:00): 31, pid=5, name=a, Ch 00000010, intr 0",
         "NVRM: Xid (PCI:0000:01:00): 31, pid=6, name=b, Ch 00000010, intr 0",
         "NVRM: Xid (PCI:0000:01:00): 43, pid=5, name=a, Ch 00000010",
         "NVRM: Xid (PCI:0000:01:00): 43, pid=7, name=c, Ch 00000010");
    const bl_gpu_verdict *v = verdict_of("0000:01:00");
    assert_int_equal(v->n_incidents, 3);
    assert_int_equal(v->incidents[0]->n_echoes_all, 1);
    assert_false(v->has_span);
}

/* ---- classes -------------------------------------------------------------------------------------------------------- */

static void a_remap_alone_is_a_repair_and_no_fault(void **state)
{
    (void)state;
    FOLD(fold,
         "[ 10.000000] NVRM: Xid (PCI:0000:01:00): 63, Row Remapper: New row (0x1) marked for remapping, reset gpu to "
         "activate.");
    const bl_gpu_verdict *v = verdict_of("0000:01:00");
    assert_int_equal(v->class, BL_GPU_CLASS_NONE);
    assert_true(v->is_pending_repair);
    assert_int_equal(v->severity, BL_XID_SEVERITY_WARNING);
}

static void the_action_of_154_comes_before_the_table(void **state)
{
    (void)state;
    FOLD(fold,
         "2024-10-19T02:14:24,101230+00:00 NVRM: Xid (PCI:0000:cb:00): 48, pid=9, name=python, An uncorrectable double "
         "bit "
         "error (DBE) has been detected on GPU in the framebuffer at physAddr 0x9b2c4c0 partition 7, subpartition 1.",
         "2024-10-19T02:14:24,101977+00:00 NVRM: Xid (PCI:0000:cb:00): 63, pid=9, name=python, Row Remapper: New row "
         "(0x9b) "
         "marked for remapping, reset gpu to activate.",
         "2024-10-19T02:14:24,102501+00:00 NVRM: Xid (PCI:0000:cb:00): 94, pid=9, name=python, Contained: SM (0x1). "
         "RST: No, "
         "D-RST: No",
         "2024-10-19T02:14:24,160022+00:00 NVRM: Xid (PCI:0000:cb:00): 45, pid=9, name=python, Ch 00000010",
         "2024-10-19T02:14:24,160900+00:00 NVRM: Xid (PCI:0000:cb:00): 154, GPU recovery action changed from 0x0 "
         "(None) to 0x2 "
         "(Node Reboot Required)");
    const bl_gpu_verdict *v = verdict_of("0000:cb:00");
    assert_int_equal(v->n_incidents, 1);
    assert_true(v->class == BL_GPU_CLASS_HARDWARE && v->is_settled);
    assert_int_equal(v->severity, BL_XID_SEVERITY_NODE);
    assert_codes(v, "48 63 94 45 154");
    assert_lines(v, "O1 A5 C2 C3");
    assert_int_equal(v->origin->action, BL_RECOVERY_NODE_REBOOT);
}

static void poisoned_data_is_hardware_whatever_the_code(void **state)
{
    (void)state;
    FOLD(fold,
         "[ 10.000000] NVRM: Xid (PCI:0000:01:00): 31, pid=5, name=a, Ch 00000008, intr 0. MMU Fault: ENGINE GRAPHICS "
         "GPCCLIENT_T1_3 faulted @ 0x7f9a_b2000000. Fault is of type FAULT_INFO_TYPE_POISONED ACCESS_TYPE_VIRT_READ");
    const bl_gpu_verdict *v = verdict_of("0000:01:00");
    assert_true(v->class == BL_GPU_CLASS_HARDWARE && v->is_settled);
    assert_int_equal(v->severity, BL_XID_SEVERITY_GPU);
}

static void the_heaviest_line_of_a_burst_decides(void **state)
{
    (void)state;
    FOLD(fold, "[ 10.000000] NVRM: Xid (PCI:0000:01:00): 13, pid=5, name=a, Graphics Exception: ESR 0x50dfb0=0x1000f",
         "[ 10.000400] NVRM: Xid (PCI:0000:01:00): 95, pid=5, name=a, Uncontained: SM (0x1). RST: Yes, D-RST: No");
    const bl_gpu_verdict *v = verdict_of("0000:01:00");
    assert_int_equal(v->n_incidents, 1);
    assert_int_equal(v->class, BL_GPU_CLASS_HARDWARE);
    assert_int_equal(v->origin->code, 13);
    assert_int_equal(v->decisive_code, 95);
    assert_lines(v, "C2 O1");
}

static void sides_are_told_apart(void **state)
{
    (void)state;
    FOLD(fold,
         "[ 10.0] NVRM: Xid (PCI:0000:01:00): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response from "
         "GPU0 "
         "GSP! Expected function 76 (GSP_RM_CONTROL) (0x1 0x4).",
         "[ 11.0] NVRM: Xid (PCI:0000:02:00): 8, Channel 00000018",
         "[ 12.0] NVRM: Xid (PCI:0000:03:00): 46, GPU stopped processing",
         "[ 13.0] NVRM: Xid (PCI:0000:04:00): 92, High single-bit ECC error rate",
         "[ 14.0] NVRM: Xid (PCI:0000:05:00): 901, something new",
         "[ 15.0] NVRM: Xid (PCI:0000:06:00): 43, pid=1, name=x, Ch 00000001",
         "[ 16.0] NVRM: Xid (PCI:0000:07:00): 45, pid=1, name=x, Ch 00000001",
         "[ 17.0] NVRM: GPU 0000:08:00.0: RmInitAdapter failed! (0x26:0x56:1474)",
         "[ 18.0] NVRM: Xid (PCI:0000:09:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset "
         "Required)");
    assert_int_equal(verdict_of("0000:01:00")->class, BL_GPU_CLASS_DRIVER);
    assert_int_equal(verdict_of("0000:02:00")->class, BL_GPU_CLASS_APPLICATION);
    const bl_gpu_verdict *v = verdict_of("0000:03:00");
    assert_true(v->class == BL_GPU_CLASS_HARDWARE && !v->is_settled);
    assert_int_equal(verdict_of("0000:04:00")->class, BL_GPU_CLASS_NONE);
    v = verdict_of("0000:05:00");
    assert_int_equal(v->class, BL_GPU_CLASS_NONE);
    assert_null(v->origin->row);
    assert_int_equal(v->decisive_code, 901);
    assert_int_equal(verdict_of("0000:06:00")->class, BL_GPU_CLASS_APPLICATION);
    assert_int_equal(verdict_of("0000:07:00")->class, BL_GPU_CLASS_NONE);
    v = verdict_of("0000:08:00");
    assert_int_equal(v->class, BL_GPU_CLASS_DRIVER);
    assert_int_equal(v->severity, BL_XID_SEVERITY_GPU);
    v = verdict_of("0000:09:00");
    assert_true(v->class == BL_GPU_CLASS_HARDWARE && !v->is_settled);
    assert_int_equal(v->severity, BL_XID_SEVERITY_GPU);
}

static void a_lost_gpu_without_an_xid_is_79_with_its_port(void **state)
{
    (void)state;
    FOLD(fold, "[20411.660102] pcieport 0000:5d:01.0: AER: Uncorrected (Fatal) error received: 0000:5d:01.0",
         "[20411.660103] pcieport 0000:0a:01.0: AER: Corrected error received: 0000:0a:01.0",
         "[20411.771930] NVRM: The NVIDIA GPU 0000:5e:00.0",
         "               NVRM: (PCI ID: 10de:2330) installed in this system has",
         "               NVRM: fallen off the bus and is not responding to commands.");
    const bl_gpu_verdict *v = verdict_of("0000:5e:00");
    assert_true(v->class == BL_GPU_CLASS_HARDWARE && v->is_settled);
    assert_int_equal(v->decisive_code, 79);
    assert_int_equal(v->severity, BL_XID_SEVERITY_NODE);
    char words[BL_PCI_WORDS];
    assert_string_equal(bl_pci_describe(v->upstream, words), "0000:5d:01.0");
    assert_lines(v, "O5 X1");
}

static void a_dead_link_is_joined_to_its_switch(void **state)
{
    (void)state;
    FOLD(fold,
         "[Thu Feb 13 05:40:01 2025] nvidia-nvswitch1: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 21 egress "
         "non-posted PRIV "
         "error (First)",
         "[Thu Feb 13 05:40:01 2025] nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
         "[Thu Feb 13 05:40:01 2025] nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 20034, Data {0x50610002}",
         "[Thu Feb 13 05:40:02 2025] NVRM: Xid (PCI:0000:90:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal "
         "error "
         "detected on link 9(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
         "[Thu Feb 13 05:40:02 2025] NVRM: Xid (PCI:0000:90:00): 45, pid=66104, name=pt_main_thread, Ch 00000008 "
         "caused by "
         "previous Xid 74");
    const bl_gpu_verdict *v = verdict_of("0000:90:00");
    assert_true(v->class == BL_GPU_CLASS_LINK && v->is_settled);
    assert_int_equal(v->origin->link, 9);
    assert_int_equal(v->origin->pid, 66104);
    assert_int_equal(v->link_partner.code, 20034);
    assert_int_equal(v->link_partner.number, 3);
    assert_int_equal(v->link_partner.link, 30);
    assert_lines(v, "O4 S2");
    const bl_gpu_switch *switches;
    assert_int_equal(bl_gpu_switches(fold, &switches), 2);
    assert_true(!switches[0].is_joined && switches[1].is_joined);
}

/* ---- repeats -------------------------------------------------------------------------------------------------------- */

/* An Xid 31 of a process at a second of a boot clock. */
static void add_mmu_fault(int file, int second, const char *pci, int pid, const char *name)
{
    static int64_t line;
    char text[200];
    bl_kernel_event event;
    snprintf(text, sizeof text, "NVRM: Xid (PCI:%s): 31, pid=%d, name=%s, Ch 00000010, intr 0", pci, pid, name);
    assert_true(bl_kernel_read(text, (int64_t)strlen(text), &event));
    bl_gpu_place place = {file, ++line, (int64_t)second * 1000000, BL_TIME_BOOT};
    assert_true(bl_gpu_fold_add(fold, &event, place));
}

static void add_sm_fault(int second, const char *pci, int pid, const char *name, int tpc)
{
    static int64_t line = 10000;
    char text[200];
    bl_kernel_event event;
    snprintf(text, sizeof text,
             "NVRM: Xid (PCI:%s): 13, pid=%d, name=%s, Graphics SM Warp Exception on (GPC 3, TPC %d, SM 1): Out Of "
             "Range Address",
             pci, pid, name, tpc);
    assert_true(bl_kernel_read(text, (int64_t)strlen(text), &event));
    bl_gpu_place place = {0, ++line, (int64_t)second * 1000000, BL_TIME_BOOT};
    assert_true(bl_gpu_fold_add(fold, &event, place));
}

static void many_programs_on_one_gpu_make_it_suspect(void **state)
{
    (void)state;
    add_mmu_fault(0, 1000, "0000:41:00", 1, "namd3");
    add_mmu_fault(0, 2000, "0000:41:00", 2, "pmemd.cuda");
    assert_int_equal(verdict_of("0000:41:00")->class, BL_GPU_CLASS_APPLICATION);
    add_mmu_fault(0, 3000, "0000:41:00", 3, "python");
    add_mmu_fault(0, 4000, "0000:81:00", 4, "python");
    const bl_gpu_verdict *v = verdict_of("0000:41:00");
    assert_int_equal(v->class, BL_GPU_CLASS_APPLICATION); /* python fails on the other one as well */
    add_mmu_fault(0, 5000, "0000:41:00", 5, "relion");
    v = verdict_of("0000:41:00");
    assert_int_equal(v->class, BL_GPU_CLASS_SUSPECT);
    assert_false(v->is_settled);
    assert_int_equal(v->n_counted, 3);
    assert_int_equal(v->n_programs, 3);
    assert_int_equal(v->severity, BL_XID_SEVERITY_NODE);
    assert_true(v->has_span);
    assert_int_equal((v->last_time - v->first_time) / 1000000, 4000);
    assert_int_equal(verdict_of("0000:81:00")->class, BL_GPU_CLASS_APPLICATION);
}

static void one_program_that_fails_again_and_again_is_an_application(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        add_mmu_fault(0, 1000 * i, "0000:41:00", 100 + i, i % 2 == 0 ? "python" : "python3.11");
    const bl_gpu_verdict *v = verdict_of("0000:41:00");
    assert_int_equal(v->class, BL_GPU_CLASS_APPLICATION);
    assert_int_equal(v->n_counted, 20);
    assert_int_equal(v->n_programs, 1);
}

static void programs_that_fail_on_every_gpu_are_applications(void **state)
{
    (void)state;
    static const char *const gpus[] = {"0000:41:00", "0000:61:00"};
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    for (int i = 0; i < 12; i++)
        add_mmu_fault(0, 1000 * i, gpus[i % 2], 100 + i, names[i / 2]);
    assert_int_equal(verdict_of("0000:41:00")->class, BL_GPU_CLASS_APPLICATION);
    assert_int_equal(verdict_of("0000:61:00")->class, BL_GPU_CLASS_APPLICATION);
}

static void two_programs_on_one_tpc_make_it_suspect(void **state)
{
    (void)state;
    add_sm_fault(1000, "0000:41:00", 1, "namd3", 4);
    add_sm_fault(2000, "0000:41:00", 2, "relion", 4);
    const bl_gpu_verdict *v = verdict_of("0000:41:00");
    assert_int_equal(v->class, BL_GPU_CLASS_SUSPECT);
    assert_int_equal(v->gpc, 3);
    assert_int_equal(v->tpc, 4);
    assert_int_equal(v->n_on_tpc, 2);
    add_sm_fault(3000, "0000:41:00", 3, "namd3", 1);
    assert_int_equal(verdict_of("0000:41:00")->class, BL_GPU_CLASS_APPLICATION); /* spread */
}

static void one_program_on_one_tpc_needs_days(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        add_sm_fault(1000 * i, "0000:41:00", 100 + i, "python", 4);
    assert_int_equal(verdict_of("0000:41:00")->class, BL_GPU_CLASS_APPLICATION);
    add_sm_fault(90000, "0000:41:00", 200, "python", 4);
    assert_int_equal(verdict_of("0000:41:00")->class, BL_GPU_CLASS_SUSPECT);
}

static void old_repeats_do_not_condemn_a_gpu(void **state)
{
    (void)state;
    add_mmu_fault(0, 1000, "0000:41:00", 1, "a");
    add_mmu_fault(0, 2000, "0000:41:00", 2, "b");
    add_mmu_fault(0, 3000, "0000:41:00", 3, "c");
    assert_int_equal(verdict_of("0000:41:00")->class, BL_GPU_CLASS_SUSPECT);
    add_mmu_fault(0, 4000000, "0000:41:00", 4, "d"); /* 46 days later */
    assert_int_equal(verdict_of("0000:41:00")->class, BL_GPU_CLASS_APPLICATION);
    bl_gpu_options options = {.window = INT64_C(60) * 86400 * 1000000};
    assert_int_equal(bl_gpu_judge(fold, &options, &verdicts), 1);
    assert_int_equal(verdicts[0].class, BL_GPU_CLASS_SUSPECT);
}

static void a_reset_begins_the_count_anew(void **state)
{
    (void)state;
    static const char loading[] = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.45.04";
    bl_kernel_event event = read_kernel(loading);
    add_mmu_fault(0, 1000, "0000:41:00", 1, "a");
    add_mmu_fault(0, 2000, "0000:41:00", 2, "b");
    add_mmu_fault(0, 3000, "0000:41:00", 3, "c");
    assert_true(bl_gpu_fold_add(fold, &event, (bl_gpu_place){0, 90000, 4000000000, BL_TIME_BOOT}));
    const bl_gpu_verdict *v = verdict_of("0000:41:00");
    assert_int_equal(v->class, BL_GPU_CLASS_APPLICATION);
    assert_true(v->origin->is_before_reset);
    add_mmu_fault(0, 5000, "0000:41:00", 4, "d");
    v = verdict_of("0000:41:00");
    assert_int_equal(v->class, BL_GPU_CLASS_APPLICATION);
    assert_int_equal(v->origin->pid, 4);
}

static void a_clock_that_goes_back_is_another_boot(void **state)
{
    (void)state;
    add_mmu_fault(0, 1000, "0000:41:00", 1, "a");
    add_mmu_fault(0, 2000, "0000:41:00", 2, "b");
    add_mmu_fault(0, 10, "0000:41:00", 3, "c");
    const bl_gpu_verdict *v = verdict_of("0000:41:00");
    assert_int_equal(v->class, BL_GPU_CLASS_APPLICATION);
    assert_true(v->incidents[0]->is_before_reset);
    assert_int_equal(v->incidents[2]->epoch, 1);
    assert_false(v->has_span);
}

static void a_withdrawn_action_is_a_repair(void **state)
{
    (void)state;
    FOLD(fold, "[ 10.0] NVRM: Xid (PCI:0000:01:00): 63, Row Remapper: New row (0x1) marked for remapping",
         "[ 11.0] NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset "
         "Required)",
         "[ 99.0] NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 "
         "(None)");
    const bl_gpu_verdict *v = verdict_of("0000:01:00");
    assert_true(v->action_is_withdrawn);
    assert_false(v->is_pending_repair);
    assert_true(v->origin->is_before_reset);
}

static void an_action_without_incidents_is_a_verdict_about_nothing(void **state)
{
    (void)state;
    FOLD(fold, "[ 9.0] NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to "
               "0x0 (None)");
    const bl_gpu_verdict *v = verdict_of("0000:01:00");
    assert_int_equal(v->class, BL_GPU_CLASS_NONE);
    assert_null(v->origin);
    assert_int_equal(v->n_lines, 0);
    assert_true(v->action_is_withdrawn);
}

/* ---- machines and files ----------------------------------------------------------------------------------------------- */

static void one_address_in_two_files_is_two_gpus(void **state)
{
    (void)state;
    static const char *const lines[] = {"[ 10.0] NVRM: Xid (PCI:0000:01:00): 31, pid=5, name=a, Ch 00000010, intr 0"};
    fold_lines(fold, 0, lines, 1);
    fold_lines(fold, 1, lines, 1);
    assert_int_equal(judge(), 2);
}

static void one_uuid_in_two_files_is_one_gpu_and_one_event(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "[ 9.0] NVRM: GPU at PCI:0000:01:00: GPU-5e1f0a2c-1111-2222-3333-444455556666",
        "[ 10.0] NVRM: Xid (PCI:0000:01:00): 31, pid=5, name=a, Ch 00000010, intr 0",
    };
    static const char *const same[] = {
        "Jun  9 11:20:40 node7 kernel: NVRM: GPU at PCI:0000:01:00: GPU-5e1f0a2c-1111-2222-3333-444455556666",
        "Jun  9 11:20:41 node7 kernel: NVRM: Xid (PCI:0000:01:00): 31, pid=5, name=a, Ch 00000010, intr 0",
        "Jun  9 11:20:49 node7 kernel: NVRM: Xid (PCI:0000:01:00): 31, pid=6, name=a, Ch 00000010, intr 0",
    };
    fold_lines(fold, 0, lines, BL_COUNT(lines));
    fold_lines(fold, 1, same, BL_COUNT(same));
    assert_int_equal(judge(), 1);
    assert_int_equal(verdicts[0].n_incidents, 2);
    assert_string_equal(verdicts[0].host, "node7");
}

static void an_exchanged_board_does_not_inherit(void **state)
{
    (void)state;
    FOLD(fold, "[ 9.0] NVRM: GPU at PCI:0000:01:00: GPU-5e1f0a2c-1111-2222-3333-444455556666",
         "[ 10.0] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
         "[ 99.0] NVRM: GPU at PCI:0000:01:00: GPU-77777777-1111-2222-3333-444455556666",
         "[100.0] NVRM: Xid (PCI:0000:01:00): 31, pid=5, name=a, Ch 00000010, intr 0");
    assert_int_equal(judge(), 2);
    assert_string_equal(verdicts[0].uuid, "GPU-5e1f0a2c-1111-2222-3333-444455556666");
    assert_int_equal(verdicts[1].class, BL_GPU_CLASS_APPLICATION);
    assert_string_equal(verdicts[1].uuid, "GPU-77777777-1111-2222-3333-444455556666");
}

static void the_order_of_files_changes_nothing(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        add_mmu_fault(first, 1000, "0000:41:00", 1, "a");
        add_mmu_fault(1 - first, 1000, "0000:41:00", 1, "a");
        add_mmu_fault(1 - first, 2000, "0000:41:00", 2, "b");
        assert_int_equal(judge(), 2);
        for (int i = 0; i < 2; i++)
            assert_int_equal(verdicts[i].class, BL_GPU_CLASS_APPLICATION);
        bl_gpu_fold_free(fold);
        fold = bl_gpu_fold_new();
    }
}

/* ---- joins ----------------------------------------------------------------------------------------------------------- */

static bl_gpu_match find(int64_t pid, bl_time_kind kind, int64_t time, int64_t cuda_code)
{
    bl_gpu_error error = {.pid = pid, .time = time, .time_kind = kind, .cuda_code = cuda_code};
    assert_true(judge() > 0);
    return bl_gpu_find(fold, &error);
}

/* 2025-08-05 10:41:08 UTC */
#define MOMENT INT64_C(1754390468000000)

static void fold_wall(int64_t time, const char *pci, int pid, const char *message)
{
    static int64_t line;
    char text[300];
    bl_kernel_event event;
    snprintf(text, sizeof text, "NVRM: Xid (PCI:%s): 31, pid=%d, name=x, %s", pci, pid, message);
    assert_true(bl_kernel_read(text, (int64_t)strlen(text), &event));
    assert_true(bl_gpu_fold_add(fold, &event, (bl_gpu_place){0, ++line, time, BL_TIME_WALL}));
}

static void pid_and_time_join_best(void **state)
{
    (void)state;
    fold_wall(MOMENT, "0000:2a:00", 88120, "Ch 00000002, intr 0");
    fold_wall(MOMENT + 100, "0000:3a:00", 7, "Ch 00000002, intr 0");
    bl_gpu_match m = find(88120, BL_TIME_WALL, MOMENT + 190000, 700);
    assert_int_equal(m.join, BL_GPU_JOIN_PID_AND_TIME);
    assert_int_equal(m.incident->pid, 88120);
    assert_true(m.kind_fits && !m.is_ambiguous);
    m = find(88120, BL_TIME_NONE, 0, 700);
    assert_int_equal(m.join, BL_GPU_JOIN_PID);
    m = find(88120, BL_TIME_WALL, MOMENT + INT64_C(7200) * 1000000, 700);
    assert_int_equal(m.join, BL_GPU_JOIN_PID_AND_ZONE);
    m = find(88120, BL_TIME_OF_DAY, MOMENT % (INT64_C(86400) * 1000000), 700);
    assert_int_equal(m.join, BL_GPU_JOIN_PID_AND_TIME);
}

static void a_pid_that_was_used_again_is_not_joined(void **state)
{
    (void)state;
    fold_wall(MOMENT, "0000:2a:00", 88120, "Ch 00000002, intr 0");
    bl_gpu_match m = find(88120, BL_TIME_WALL, MOMENT + INT64_C(30) * 86400 * 1000000, 700);
    assert_int_equal(m.join, BL_GPU_JOIN_NONE);
    assert_null(m.incident);
    assert_int_equal(m.verdict, -1);
}

static void time_alone_joins_when_the_kind_fits(void **state)
{
    (void)state;
    fold_wall(MOMENT, "0000:2a:00", 88120, "Ch 00000002, intr 0");
    bl_gpu_match m = find(-1, BL_TIME_WALL, MOMENT + 3000000, 700);
    assert_int_equal(m.join, BL_GPU_JOIN_TIME);
    m = find(12, BL_TIME_WALL, MOMENT + 1000000, 700);
    assert_int_equal(m.join, BL_GPU_JOIN_TIME);
    assert_true(m.pids_differ);
    assert_int_equal(find(12, BL_TIME_WALL, MOMENT + 4000000, 700).join, BL_GPU_JOIN_NONE);
    assert_int_equal(find(-1, BL_TIME_WALL, MOMENT + 9000000, 700).join, BL_GPU_JOIN_NONE);
    assert_int_equal(find(-1, BL_TIME_WALL, MOMENT, 716).join, BL_GPU_JOIN_NONE);
    fold_wall(MOMENT + 100, "0000:3a:00", 7, "Ch 00000002, intr 0");
    m = find(-1, BL_TIME_WALL, MOMENT + 200, 700);
    assert_true(m.is_ambiguous);
    assert_int_equal(m.incident->pid, 88120);
}

static void the_only_incident_joins_without_pid_and_time(void **state)
{
    (void)state;
    add_mmu_fault(0, 1000, "0000:41:00", 1, "a");
    bl_gpu_match m = find(-1, BL_TIME_NONE, 0, 700);
    assert_int_equal(m.join, BL_GPU_JOIN_ALONE);
    assert_int_equal(m.verdict, 0);
    assert_int_equal(find(-1, BL_TIME_NONE, 0, 716).join, BL_GPU_JOIN_NONE);
    add_mmu_fault(0, 2000, "0000:41:00", 2, "b");
    assert_int_equal(find(-1, BL_TIME_NONE, 0, 700).join, BL_GPU_JOIN_NONE);
}

static void kinds_fit_their_cuda_errors(void **state)
{
    (void)state;
    FOLD(fold,
         "[ 10.0] NVRM: Xid (PCI:0000:01:00): 13, pid=1, name=x, Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): "
         "Misaligned Address",
         "[ 11.0] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.",
         "[ 12.0] NVRM: Xid (PCI:0000:03:00): 74, NVLink: fatal error detected on link 9(0x0)",
         "[ 13.0] NVRM: Xid (PCI:0000:04:00): 8, Channel 00000018");
    const bl_gpu_incident *sm = verdict_of("0000:01:00")->origin, *lost = verdict_of("0000:02:00")->origin,
                          *link = verdict_of("0000:03:00")->origin, *idle = verdict_of("0000:04:00")->origin;
    assert_true(bl_gpu_incident_fits(sm, 716) && bl_gpu_incident_fits(sm, 719) && !bl_gpu_incident_fits(sm, 700));
    assert_true(bl_gpu_incident_fits(lost, 999) && !bl_gpu_incident_fits(lost, 710));
    assert_true(bl_gpu_incident_fits(link, 220) && !bl_gpu_incident_fits(link, 700));
    assert_true(bl_gpu_incident_fits(idle, 702) && !bl_gpu_incident_fits(idle, 716));
    assert_true(bl_gpu_incident_fits(sm, 0));
}

/* ---- bounds ---------------------------------------------------------------------------------------------------------- */

static void a_log_of_nothing_but_faults_stays_bounded(void **state)
{
    (void)state;
    for (int i = 0; i < 5000; i++)
        add_mmu_fault(0, 100 * i, "0000:41:00", i, "python");
    const bl_gpu_verdict *v = verdict_of("0000:41:00");
    assert_int_equal(v->n_incidents, 5000);
    assert_int_equal(v->n_kept, BL_GPU_KEPT_FIRST + BL_GPU_KEPT_LAST);
    assert_int_equal(v->n_only_counted, 5000 - v->n_kept);
    assert_int_equal(v->incidents[0]->pid, 0);
    assert_int_equal(v->incidents[v->n_kept - 1]->pid, 4999);
    assert_int_equal(v->n_pids, BL_GPU_DISTINCT);
    for (int64_t i = 1; i < v->n_kept; i++)
        assert_true(v->incidents[i]->place.time > v->incidents[i - 1]->place.time);
}

static void more_gpus_than_there_are_are_counted_as_lost(void **state)
{
    (void)state;
    char pci[16];
    bl_kernel_event event;
    for (int i = 0; i < BL_GPU_MOST + 3; i++) {
        char text[100];
        snprintf(pci, sizeof pci, "%04x:01:00", i);
        snprintf(text, sizeof text, "NVRM: Xid (PCI:%s): 79, GPU has fallen off the bus.", pci);
        assert_true(bl_kernel_read(text, (int64_t)strlen(text), &event));
        bool is_kept = bl_gpu_fold_add(fold, &event, (bl_gpu_place){0, i + 1, 0, BL_TIME_NONE});
        assert_int_equal(is_kept, i < BL_GPU_MOST);
    }
    assert_int_equal(bl_gpu_n_lost(fold), 3);
    assert_int_equal(judge(), BL_GPU_MOST);
    assert_false(bl_gpu_fold_add(fold, &event, (bl_gpu_place){-1, 1, 0, BL_TIME_NONE}));
    assert_false(bl_gpu_fold_add(fold, &event, (bl_gpu_place){INT32_MAX, 1, 0, BL_TIME_NONE}));
}

static void a_storm_of_switch_events_keeps_the_fatal_ones(void **state)
{
    (void)state;
    bl_kernel_event mild = read_kernel("nvidia-nvswitch1: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 21 x");
    bl_kernel_event fatal =
        read_kernel("nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM Fault Up");
    for (int i = 0; i < 1000; i++)
        assert_true(bl_gpu_fold_add(fold, &mild, (bl_gpu_place){0, i + 1, 0, BL_TIME_NONE}));
    assert_true(bl_gpu_fold_add(fold, &fatal, (bl_gpu_place){0, 2000, 0, BL_TIME_NONE}));
    const bl_gpu_switch *switches;
    int n = bl_gpu_switches(fold, &switches), n_fatal = 0;
    for (int i = 0; i < n; i++)
        n_fatal += switches[i].severity == BL_KERNEL_FATAL;
    assert_int_equal(n_fatal, 1);
    assert_true(n < 100);
}

static void without_memory_events_are_lost_and_nothing_else(void **state)
{
    (void)state;
    bl_gpu_fold_free(fold);
    fold = NULL;
    for (int64_t n = 0;; n++) {
        bl_memory_fail_at(n);
        fold = bl_gpu_fold_new();
        if (fold != NULL) {
            bool is_kept = true;
            bl_kernel_event event = read_kernel(ten_lines[6]);
            for (int i = 0; i < 20; i++)
                is_kept = bl_gpu_fold_add(fold, &event, (bl_gpu_place){0, i + 1, i * INT64_C(9000000), BL_TIME_BOOT}) &&
                          is_kept;
            int n_verdicts = judge();
            assert_true(is_kept || bl_gpu_n_lost(fold) == 1);
            assert_true(n_verdicts == 1 || n_verdicts == -1);
        }
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (!failed)
            break;
        bl_gpu_fold_free(fold);
        fold = NULL;
    }
    assert_int_equal(judge(), 1);
}

#define WITH_FOLD(test) cmocka_unit_test_setup_teardown(test, open_fold, close_fold)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLD(the_ten_lines_are_four_verdicts_and_a_switch),
        WITH_FOLD(echoes_fold_into_the_first_xid_of_their_process),
        WITH_FOLD(faults_of_two_processes_are_two_incidents),
        WITH_FOLD(instances_of_one_gpu_keep_their_faults_apart),
        WITH_FOLD(an_echo_that_comes_first_steps_back),
        WITH_FOLD(details_of_48_attach_to_it_from_either_side),
        WITH_FOLD(a_named_cause_that_is_not_in_the_log_is_kept),
        WITH_FOLD(lines_without_times_fold_by_process),
        WITH_FOLD(a_remap_alone_is_a_repair_and_no_fault),
        WITH_FOLD(the_action_of_154_comes_before_the_table),
        WITH_FOLD(poisoned_data_is_hardware_whatever_the_code),
        WITH_FOLD(the_heaviest_line_of_a_burst_decides),
        WITH_FOLD(sides_are_told_apart),
        WITH_FOLD(a_lost_gpu_without_an_xid_is_79_with_its_port),
        WITH_FOLD(a_dead_link_is_joined_to_its_switch),
        WITH_FOLD(many_programs_on_one_gpu_make_it_suspect),
        WITH_FOLD(one_program_that_fails_again_and_again_is_an_application),
        WITH_FOLD(programs_that_fail_on_every_gpu_are_applications),
        WITH_FOLD(two_programs_on_one_tpc_make_it_suspect),
        WITH_FOLD(one_program_on_one_tpc_needs_days),
        WITH_FOLD(old_repeats_do_not_condemn_a_gpu),
        WITH_FOLD(a_reset_begins_the_count_anew),
        WITH_FOLD(a_clock_that_goes_back_is_another_boot),
        WITH_FOLD(a_withdrawn_action_is_a_repair),
        WITH_FOLD(an_action_without_incidents_is_a_verdict_about_nothing),
        WITH_FOLD(one_address_in_two_files_is_two_gpus),
        WITH_FOLD(one_uuid_in_two_files_is_one_gpu_and_one_event),
        WITH_FOLD(an_exchanged_board_does_not_inherit),
        WITH_FOLD(the_order_of_files_changes_nothing),
        WITH_FOLD(pid_and_time_join_best),
        WITH_FOLD(a_pid_that_was_used_again_is_not_joined),
        WITH_FOLD(time_alone_joins_when_the_kind_fits),
        WITH_FOLD(the_only_incident_joins_without_pid_and_time),
        WITH_FOLD(kinds_fit_their_cuda_errors),
        WITH_FOLD(a_log_of_nothing_but_faults_stays_bounded),
        WITH_FOLD(more_gpus_than_there_are_are_counted_as_lost),
        WITH_FOLD(a_storm_of_switch_events_keeps_the_fatal_ones),
        WITH_FOLD(without_memory_events_are_lost_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
