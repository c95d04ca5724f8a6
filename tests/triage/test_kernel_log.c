/* SPDX-License-Identifier: Apache-2.0 */
/* A line of a kernel log becomes what it says, and nothing else becomes an event. */
#include "kernel_support.h"

#include "base/checked.h"

/* ---- the ten example lines --------------------------------------------------------------------------------------- */

static void line_1_tells_the_identity_of_a_gpu_and_is_no_xid(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel(ten_lines[0]);
    assert_int_equal(e.kind, BL_KERNEL_IDENTITY);
    assert_pci(e.pci, "0000:3b:00");
    assert_string_equal(e.uuid, "GPU-5e1f0a2c-1111-2222-3333-444455556666");
}

static void line_2_has_address_fault_type_access_and_client(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel(ten_lines[1]);
    assert_int_equal(e.kind, BL_KERNEL_XID);
    assert_int_equal(e.code, 31);
    assert_int_equal(e.pid_form, BL_KERNEL_PID_KNOWN);
    assert_int_equal(e.pid, 41207);
    ASSERT_TEXT(e.name, "belay");
    assert_true(e.has_address && !e.is_physical);
    assert_true(e.address == UINT64_C(0x7e2a4c600000));
    assert_int_equal(e.channel, 0x18);
    assert_int_equal(e.fault_type, BL_MMU_PTE);
    ASSERT_TEXT(e.fault_text, "FAULT_PTE");
    assert_int_equal(e.access, BL_ACCESS_READ);
    assert_int_equal(e.client_kind, BL_CLIENT_SM);
    ASSERT_TEXT(e.client, "GPCCLIENT_T1_5");
    ASSERT_TEXT(e.engine, "GRAPHICS");
    assert_int_equal(e.gpc, 2);
    assert_true(e.message_fits);
}

static void line_3_names_the_xid_that_caused_it(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel(ten_lines[2]);
    assert_int_equal(e.code, 45);
    assert_int_equal(e.cause, 31);
    assert_int_equal(bl_xid_find(45)->side, BL_XID_SIDE_SECONDARY);
}

static void line_4_has_a_mig_instance_and_a_comma_in_its_name(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel(ten_lines[3]);
    assert_pci(e.pci, "0000:5e:00");
    assert_int_equal(e.gi, 5);
    assert_int_equal(e.ci, 0);
    assert_int_equal(e.code, 13);
    ASSERT_TEXT(e.name, "my job, v2");
    assert_false(e.name_is_uncertain);
    assert_int_equal(e.sm_reason, BL_SM_MISALIGNED);
    assert_int_equal(bl_sm_reason_cuda(e.sm_reason), 716);
    assert_int_equal(e.gpc, 1);
    assert_int_equal(e.tpc, 3);
    assert_int_equal(e.sm, 0);
}

static void line_5_has_an_unknown_pid_and_a_physical_address(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel(ten_lines[4]);
    assert_int_equal(e.code, 48);
    assert_int_equal(e.pid_form, BL_KERNEL_PID_UNKNOWN);
    assert_int_equal(e.pid, -1);
    ASSERT_TEXT(e.name, "");
    assert_true(e.has_address && e.is_physical && e.address == UINT64_C(0x1a2b3c000));
    assert_int_equal(e.partition, 4);
    assert_int_equal(e.subpartition, 1);
    assert_int_equal(bl_xid_find(48)->side, BL_XID_SIDE_HARDWARE);
}

static void line_6_has_a_pid_without_a_name(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel(ten_lines[5]);
    assert_int_equal(e.code, 94);
    assert_int_equal(e.pid, 60011);
    ASSERT_TEXT(e.name, "");
    ASSERT_TEXT(e.reason, "CE User Channel");
    assert_int_equal(e.needs_reset, 0);
    assert_int_equal(e.needs_drain, 0);
}

static void line_7_has_no_pid(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel(ten_lines[6]);
    assert_int_equal(e.code, 79);
    assert_int_equal(e.pid_form, BL_KERNEL_PID_NONE);
    assert_int_equal(bl_xid_find(79)->severity, BL_XID_SEVERITY_NODE);
}

static void line_8_has_link_severity_and_sub_code(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel(ten_lines[7]);
    assert_pci(e.pci, "0018:01:00");
    assert_int_equal(e.code, 149);
    assert_int_equal(e.link, 8);
    assert_int_equal(e.severity, BL_KERNEL_FATAL);
    assert_int_equal(e.sub_code, 37);
    ASSERT_TEXT(e.unit, "NETIR_LINK_EVT");
    assert_int_equal(bl_xid_nvlink_look(149, e.unit.bytes, e.unit.n_bytes, e.sub_code), BL_XID_LOOK_PEER);
}

static void line_9_changes_the_recovery_action(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel(ten_lines[8]);
    assert_int_equal(e.code, 154);
    assert_int_equal(e.from, BL_RECOVERY_NONE);
    assert_int_equal(e.to, BL_RECOVERY_GPU_RESET);
    ASSERT_TEXT(e.to_name, "GPU Reset Required");
    assert_string_equal(bl_recovery_describe(e.to), "reset the GPU");
}

static void line_10_is_of_a_switch(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel(ten_lines[9]);
    assert_int_equal(e.kind, BL_KERNEL_SXID);
    assert_int_equal(e.switch_number, 2);
    assert_int_equal(e.code, 20034);
    assert_int_equal(e.link, 30);
    assert_int_equal(e.severity, BL_KERNEL_FATAL);
    assert_pci(e.pci, "0000:c4:00.0");
    ASSERT_TEXT(e.reason, "LTSSM Fault Up");
    assert_int_equal(bl_xid_find_switch(20034)->severity, BL_XID_SEVERITY_NODE);
}

/* ---- prefixes ---------------------------------------------------------------------------------------------------------- */

static void every_usual_prefix_is_taken_off(void **state)
{
    (void)state;
    static const char *const prefixes[] = {
        "",
        "[ 8123.400112] ",
        "[ 8123.400112][ T1234] ",
        "[Sun Jun  9 11:20:41 2024] ",
        "<3>",
        "<6>[12345.678901] ",
        "6,1234,12345678901,-;",
        "Jun  9 11:20:41 node7 kernel: ",
        "Jun  9 11:20:41 node7 kernel: [ 8123.400112] ",
        "Jun 09 11:20:41.123456 node-7.cluster kernel[0]: ",
        "2024-10-19T02:14:24,101200+00:00 ",
        "2024-10-19T02:14:24.101200Z node7 kernel: ",
        "2024-10-19 02:14:24 ",
        "kern  :err   : 2024-10-19T02:14:24,101200+00:00 ",
        "kern  :err   : [ 8123.400112] ",
        "               ",
    };
    for (int i = 0; i < BL_COUNT(prefixes); i++) {
        char line[200];
        snprintf(line, sizeof line, "%sNVRM: Xid (PCI:0000:86:00): 79, GPU has fallen off the bus.", prefixes[i]);
        bl_kernel_event e = read_kernel(line);
        if (e.kind != BL_KERNEL_XID)
            print_error("prefix '%s'\n", prefixes[i]);
        assert_int_equal(e.kind, BL_KERNEL_XID);
        assert_int_equal(e.code, 79);
    }
}

static void a_syslog_prefix_tells_the_host(void **state)
{
    (void)state;
    static const char line[] =
        "Jun  9 11:20:41 node-7 kernel: NVRM: Xid (PCI:0000:86:00): 79, GPU has fallen off the bus.";
    ASSERT_TEXT(read_kernel(line).host, "node-7");
    ASSERT_TEXT(bl_kernel_host(line, sizeof line - 1), "node-7");
    assert_int_equal(bl_kernel_host(ten_lines[1], (int64_t)strlen(ten_lines[1])).n_bytes, 0);
}

static void the_trace_point_is_read_with_its_function_number(void **state)
{
    (void)state;
    bl_kernel_event e =
        read_kernel("  my prog-41207   [003] d.h1.  8123.400131: nvidia_dev_xid: Xid (PCI:0000:3b:00.0): "
                    "43, pid=41207, name=belay, Ch 00000018");
    assert_int_equal(e.kind, BL_KERNEL_XID);
    assert_pci(e.pci, "0000:3b:00.0");
    assert_int_equal(e.code, 43);
    assert_int_equal(e.channel, 0x18);
}

/* ---- traps ----------------------------------------------------------------------------------------------------------------- */

static void a_mig_line_is_an_xid_like_any_other(void **state)
{
    (void)state;
    bl_kernel_event e =
        read_kernel("NVRM: Xid (PCI:0000:2a:00 GPU-I:13 GPU-CI:02): 43, pid=88120, name=worker, Ch 00000002");
    assert_int_equal(e.kind, BL_KERNEL_XID);
    assert_int_equal(e.gi, 13);
    assert_int_equal(e.ci, 2);
    assert_int_equal(e.pid, 88120);
}

static void an_nvlink_line_needs_no_numeric_pid(void **state)
{
    (void)state;
    bl_kernel_event e =
        read_kernel("NVRM: Xid (PCI:0018:01:00): 145, pid='<unknown>', name=<unknown>, RLW_REMAP Nonfatal XC1 "
                    "i0 Link -1 (0x00400001 0x00000002)");
    assert_int_equal(e.code, 145);
    assert_int_equal(e.link, -1);
    assert_int_equal(e.severity, BL_KERNEL_NONFATAL);
    assert_int_equal(e.xc, 1);
    assert_int_equal(e.sub_code, 4);
    assert_true(e.status == 2);
}

static void the_word_xid_in_prose_is_no_event(void **state)
{
    (void)state;
    static const char *const prose[] = {
        "An Xid 79 means that the GPU has fallen off the bus",
        "WARNING: Xid errors found on rank 3",
        "INFO: seen NVRM: Xid (PCI:0000:3b:00): 31, pid=41207, name=belay, Ch 00000018",
        "grep 'NVRM: Xid (PCI:0000:3b:00): 31, ' /var/log/kern.log",
        "> NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "Xid (PCI:0000:3b:00): 31, pid=41207",
        "print(\"nvidia_dev_xid: Xid (PCI:0000:3b:00.0): 31, x\")",
        "Xid=13 epoch=4",
        "NVRM: Xid errors are listed in the catalogue",
        "NVRM: Xid (0000:03): 14, Channel 00000001",
        "NVRM: Xid (PCI:0000:3b:00): , pid=1",
        "NVRM: Xid (PCI:0000:3b:00): 31",
        "NVRM: Xid (PCI:0000:3b:00): 31 pid=1",
        "NVRM: Xid (PCI:0000:3b:00) 31, pid=1",
        "NVRM: Xid (PCI:zzzz:3b:00): 31, pid=1",
        "NVRM: Xid (PCI:0000:3b:40): 31, pid=1",
        "NVRM: Xid (PCI:0000:3b:00): 99999999999999999999, pid=1",
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:): 31, pid=1",
        "[rank3]: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "Out of memory: we killed process 3 (x)",
        "the ring is full: segfault at 10",
        "torch.cuda.OutOfMemoryError: CUDA out of memory",
        "",
        " ",
        "[",
        "<",
        "[1]",
    };
    for (int i = 0; i < BL_COUNT(prose); i++) {
        bl_kernel_event e;
        bool is_event = bl_kernel_read(prose[i], (int64_t)strlen(prose[i]), &e);
        if (is_event)
            print_error("'%s' became an event\n", prose[i]);
        assert_false(is_event);
        assert_int_equal(e.kind, BL_KERNEL_NONE);
    }
}

/* ---- names and pids ---------------------------------------------------------------------------------------------------- */

static void a_name_that_no_message_follows_is_uncertain(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel("NVRM: Xid (PCI:0000:3b:00): 13, pid=7, name=a, b, something new");
    ASSERT_TEXT(e.name, "a");
    assert_true(e.name_is_uncertain);
    ASSERT_TEXT(e.message, "b, something new");
    assert_false(e.message_fits);
}

static void the_shortest_name_that_fits_is_taken(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel("NVRM: Xid (PCI:0000:3b:00): 43, pid=7, name=x, Ch 00000001, Ch 00000002");
    ASSERT_TEXT(e.name, "x");
    assert_false(e.name_is_uncertain);
    assert_int_equal(e.channel, 1);
}

static void a_cut_or_impossible_pid_is_none(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=412",
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=99999999999, name=x, Ch 00000001",
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=-3, name=x, Ch 00000001",
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=, name=x, Ch 00000001",
    };
    for (int i = 0; i < BL_COUNT(lines); i++) {
        bl_kernel_event e = read_kernel(lines[i]);
        assert_int_equal(e.kind, BL_KERNEL_XID);
        assert_int_equal(e.pid_form, BL_KERNEL_PID_NONE);
        assert_int_equal(e.pid, -1);
    }
}

static void the_very_old_form_is_read(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel("NVRM: Xid (0000:03:00): 14, Channel 00000001");
    assert_int_equal(e.code, 14);
    assert_pci(e.pci, "0000:03:00");
    assert_int_equal(e.channel, 1);
}

static void a_code_that_is_in_no_table_is_still_an_event(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel("NVRM: Xid (PCI:0000:3b:00): 901, pid=7, name=x, quite new");
    assert_int_equal(e.kind, BL_KERNEL_XID);
    assert_int_equal(e.code, 901);
    assert_null(bl_xid_find(901));
}

/* ---- inner messages ---------------------------------------------------------------------------------------------------- */

/* The event of a message, behind "NVRM: Xid (PCI:0000:3b:00): ". */
static bl_kernel_event read_message(const char *message)
{
    static char line[1024];
    snprintf(line, sizeof line, "NVRM: Xid (PCI:0000:3b:00): %s", message);
    bl_kernel_event e = read_kernel(line);
    assert_int_equal(e.kind, BL_KERNEL_XID);
    if (!e.message_fits)
        print_error("'%s' has no known shape\n", message);
    assert_true(e.message_fits);
    return e;
}

static void sm_exceptions_tell_reason_and_place(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        bl_sm_reason reason;
        int cuda;
    } reasons[] = {
        {"Out Of Range Address", BL_SM_OUT_OF_RANGE, 719},
        {"Misaligned Address", BL_SM_MISALIGNED, 716},
        {"Illegal Instruction Encoding", BL_SM_ILLEGAL_INSTRUCTION, 715},
        {"Illegal Instruction Parameter", BL_SM_ILLEGAL_INSTRUCTION, 715},
        {"Invalid Address Space", BL_SM_INVALID_SPACE, 717},
        {"Something else", BL_SM_OTHER, 0},
    };
    for (int i = 0; i < BL_COUNT(reasons); i++) {
        char message[200];
        snprintf(message, sizeof message, "13, pid=1, name=x, Graphics SM Warp Exception on (GPC 6, TPC 2, SM 1): %s",
                 reasons[i].words);
        bl_kernel_event e = read_message(message);
        assert_int_equal(e.sm_reason, reasons[i].reason);
        assert_int_equal(bl_sm_reason_cuda(e.sm_reason), reasons[i].cuda);
        ASSERT_TEXT(e.reason, reasons[i].words);
        assert_int_equal(e.gpc * 100 + e.tpc * 10 + e.sm, 621);
        assert_false(e.is_global || e.is_detail);
    }
    bl_kernel_event e = read_message("13, Graphics SM Global Exception on (GPC 0, TPC 1, SM 0): Multiple Warp Errors");
    assert_true(e.is_global);
    assert_int_equal(e.sm_reason, BL_SM_MULTIPLE);
}

static void register_lines_of_an_exception_are_details(void **state)
{
    (void)state;
    assert_true(read_message("13, pid=1, name=x, Graphics Exception: ESR 0x50dfb0=0x1000f 0x50dfb4=0x4").is_detail);
    assert_true(
        read_message("13, Graphics Exception: ChID 0010, Class 0000c7c0, Offset 00000510, Data 00419e84").is_detail);
    bl_kernel_event e = read_message("13, Graphics Exception: MISSING_INLINE_DATA");
    assert_false(e.is_detail);
    ASSERT_TEXT(e.reason, "MISSING_INLINE_DATA");
}

static void mmu_faults_come_in_both_channel_forms(void **state)
{
    (void)state;
    bl_kernel_event e = read_message(
        "31, pid=9, name=x, channel 0x0000001f, intr 00000000. MMU Fault: ENGINE CE3 HUBCLIENT_CE1 faulted @ "
        "0x0_00000000. Fault is of type FAULT_RO_VIOLATION ACCESS_TYPE_VIRT_WRITE");
    assert_int_equal(e.channel, 0x1f);
    assert_true(e.has_address && e.address == 0);
    assert_int_equal(e.client_kind, BL_CLIENT_COPY_ENGINE);
    assert_int_equal(e.fault_type, BL_MMU_READ_ONLY);
    assert_int_equal(e.access, BL_ACCESS_WRITE);
    assert_int_equal(e.gpc, -1);
    e = read_message("31, pid=9, name=x, Ch 00000010, engmask 00000101, intr 10000000");
    assert_int_equal(e.channel, 0x10);
    assert_false(e.has_address);
}

static void every_fault_type_and_access_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        bl_mmu_type type;
        bl_mmu_access access;
        bool is_physical;
    } faults[] = {
        {"FAULT_PDE ACCESS_TYPE_VIRT_READ", BL_MMU_PDE, BL_ACCESS_READ, false},
        {"FAULT_PDE_SIZE ACCESS_TYPE_PHYS_READ", BL_MMU_PDE_SIZE, BL_ACCESS_READ, true},
        {"FAULT_PTE ACCESS_TYPE_VIRT_ATOMIC", BL_MMU_PTE, BL_ACCESS_ATOMIC, false},
        {"FAULT_VA_LIMIT_VIOLATION ACCESS_TYPE_VIRT_WRITE", BL_MMU_VA_LIMIT, BL_ACCESS_WRITE, false},
        {"FAULT_UNBOUND_INST_BLOCK ACCESS_TYPE_PHYS_WRITE", BL_MMU_UNBOUND, BL_ACCESS_WRITE, true},
        {"FAULT_PRIV_VIOLATION ACCESS_TYPE_VIRT_PREFETCH", BL_MMU_PRIV, BL_ACCESS_PREFETCH, false},
        {"FAULT_RO_VIOLATION ACCESS_TYPE_VIRT_ATOMIC_WEAK", BL_MMU_READ_ONLY, BL_ACCESS_ATOMIC, false},
        {"FAULT_PITCH_MASK_VIOLATION ACCESS_TYPE_VIRT_READ", BL_MMU_OTHER, BL_ACCESS_READ, false},
        {"FAULT_COMPRESSION_FAILURE ACCESS_TYPE_VIRT_READ", BL_MMU_OTHER, BL_ACCESS_READ, false},
        {"FAULT_INFO_TYPE_POISONED ACCESS_TYPE_VIRT_READ", BL_MMU_POISONED, BL_ACCESS_READ, false},
        {"FAULT_INFO_TYPE_UNSUPPORTED_KIND ACCESS_TYPE_NEW", BL_MMU_OTHER, BL_ACCESS_NONE, false},
    };
    for (int i = 0; i < BL_COUNT(faults); i++) {
        char message[300];
        snprintf(message, sizeof message,
                 "31, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x7f9a_b2000000. "
                 "Fault is of type %s",
                 faults[i].words);
        bl_kernel_event e = read_message(message);
        assert_int_equal(e.fault_type, faults[i].type);
        assert_int_equal(e.access, faults[i].access);
        assert_int_equal(e.is_physical, faults[i].is_physical);
        assert_true(e.address == UINT64_C(0x7f9ab2000000));
    }
}

static void memory_errors_tell_address_and_unit(void **state)
{
    (void)state;
    bl_kernel_event e =
        read_message("63, pid=1, name=python, Row Remapper: New row (0x0000000009b2c4c0) marked for remapping, "
                     "reset gpu to activate.");
    assert_true(e.is_row_remap && e.is_physical && e.address == 0x9b2c4c0);
    e = read_message("63, Dynamic Page Retirement: New page retired, reboot to activate (0x00000000001a2b3c).");
    assert_true(!e.is_row_remap && e.address == 0x1a2b3c);
    e = read_message("64, Row Remapper: failed to record the event");
    ASSERT_TEXT(e.reason, "Row Remapper: failed to record the event");
    e = read_message("94, pid=1, name=x, Contained: LTC TAG (0x2,0x0). physAddr: 0x1f00 RST: Yes, D-RST: No");
    ASSERT_TEXT(e.reason, "LTC TAG");
    assert_true(e.is_physical && e.address == 0x1f00);
    assert_int_equal(e.needs_reset, 1);
    assert_int_equal(e.needs_drain, 0);
    e = read_message("95, Uncontained: SM (0x1). RST: Yes, D-RST: Yes");
    assert_int_equal(e.needs_drain, 1);
    e = read_message(
        "140, An uncorrectable ECC error detected (possible firmware handling failure) DRAM:1, LTC:-2, MMU:3, "
        "PCIE:0");
    assert_int_equal(e.n_dram, 1);
    assert_int_equal(e.n_ltc, -1);
    assert_int_equal(e.n_mmu, 3);
    assert_int_equal(e.n_pcie, 0);
}

static void the_other_shapes_are_read(void **state)
{
    (void)state;
    bl_kernel_event e = read_message("8, pid=1, name=x, Channel 00000018");
    assert_int_equal(e.channel, 0x18);
    e = read_message("45, pid=1, name=x, Ch 00000018");
    assert_int_equal(e.cause, -1);
    e = read_message("62, 0cb5(1938) 8503a1a4 00000000 00000000 00000000 00000000 00000000");
    assert_int_equal(e.n_words, 8);
    assert_int_equal(e.words[1], 0x1938);
    e = read_message("62, 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8");
    assert_int_equal(e.words[7], 8);
    e = read_message("74, NVLink: fatal error detected on link 9(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)");
    assert_int_equal(e.link, 9);
    assert_int_equal(e.severity, BL_KERNEL_FATAL);
    e = read_message("109, pid=1, name=x, Ch 00000018, errorString CTX SWITCH TIMEOUT, Info 0x3c046");
    ASSERT_TEXT(e.reason, "CTX SWITCH TIMEOUT");
    read_message("110, pid=1, name=x, SEC_FAULT: something");
    e = read_message(
        "119, pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 "
        "(GSP_RM_CONTROL) sequence 12 (0x20800a61 0x4).");
    assert_int_equal(e.seconds, 6);
    assert_int_equal(e.function, 76);
    assert_int_equal(e.sequence, 12);
    ASSERT_TEXT(e.reason, "GSP_RM_CONTROL");
    e = read_message(
        "119, pid=1, name=x, Timeout waiting for RPC from GSP! Expected function 103 (GSP_RM_ALLOC) (0x0 0x0).");
    assert_int_equal(e.function, 103);
    assert_int_equal(e.seconds, -1);
    e = read_message("136, NVLink: Link training failed for link 12(0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)");
    assert_int_equal(e.link, 12);
    e = read_message("144, SAW/MVB Fatal XC0 i0 Link 03 (0x00000000 0x00000000)");
    ASSERT_TEXT(e.unit, "SAW/MVB");
    e = read_message("154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x0 (None)");
    assert_int_equal(e.from, BL_RECOVERY_DRAIN_AND_RESET);
    assert_int_equal(e.to, BL_RECOVERY_NONE);
    e = read_message("154, GPU recovery action changed from 0x0 (None) to 0x2a (Send It Back)");
    assert_int_equal(e.to, BL_N_RECOVERIES);
    ASSERT_TEXT(e.to_name, "Send It Back");
}

/* ---- other lines -------------------------------------------------------------------------------------------------------- */

static void a_switch_line_has_text_instance_and_continuations(void **state)
{
    (void)state;
    bl_kernel_event e =
        read_kernel("nvidia-nvswitch1: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 21 egress non-posted PRIV "
                    "error (First)");
    assert_int_equal(e.severity, BL_KERNEL_NONFATAL);
    assert_true(e.is_first && !e.is_continuation);
    ASSERT_TEXT(e.reason, "egress non-posted PRIV error");
    e = read_kernel(
        "nvidia-nvswitch1: SXid (PCI:0000:85:00.0): 10003, Non-fatal, Host_unhandled_interrupt, instance=3, chiplet=1");
    assert_int_equal(e.instance, 3);
    assert_int_equal(e.chiplet, 1);
    assert_int_equal(e.link, -1);
    e = read_kernel(
        "nvidia-nvswitch1: SXid (PCI:0000:85:00.0): 12028, Severity 0 Engine instance 21 Sub-engine instance 00");
    assert_true(e.is_continuation);
    assert_int_equal(e.instance, 21);
    e = read_kernel("nvidia-nvswitch1: SXid (PCI:0000:85:00.0): 12028, Data {0x000001c0, 0x00a1140c}");
    assert_true(e.is_continuation);
    assert_int_equal(read_kernel("nvidia-nvswitch1: SXid (PCI:0000:85:00.0): 1202, Fatal, Link 21 x").kind,
                     BL_KERNEL_NONE);
    assert_int_equal(read_kernel("nvidia-nvswitch1: SXid (PCI:0000:85:00.0): 12028, Perhaps, Link 21 x").kind,
                     BL_KERNEL_NONE);
}

static void three_lines_say_that_a_gpu_fell_off_the_bus(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "[20411.771930] NVRM: The NVIDIA GPU 0000:5e:00.0",
        "               NVRM: (PCI ID: 10de:2330) installed in this system has",
        "[20411.771931] veth28592c0: renamed from eth0",
        "               NVRM: fallen off the bus and is not responding to commands.",
    };
    bl_kernel_reader reader = {0};
    bl_kernel_event e;
    assert_true(bl_kernel_feed(&reader, lines[0], (int64_t)strlen(lines[0]), 65, &e));
    assert_int_equal(e.kind, BL_KERNEL_PART);
    assert_true(bl_kernel_feed(&reader, lines[1], (int64_t)strlen(lines[1]), 66, &e));
    assert_int_equal(e.kind, BL_KERNEL_PART);
    assert_false(bl_kernel_feed(&reader, lines[2], (int64_t)strlen(lines[2]), 67, &e));
    assert_true(bl_kernel_feed(&reader, lines[3], (int64_t)strlen(lines[3]), 68, &e));
    assert_int_equal(e.kind, BL_KERNEL_OFF_BUS);
    assert_int_equal(e.code, 79);
    assert_pci(e.pci, "0000:5e:00.0");
    /* The next one is of a GPU that no line names. */
    assert_true(bl_kernel_feed(&reader, lines[3], (int64_t)strlen(lines[3]), 69, &e));
    assert_pci(e.pci, "unknown");
}

static void one_line_says_it_too(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "NVRM: GPU 0000:5e:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at PCI:0000:5e:00: GPU has fallen off the bus.",
        "NVRM: GPU at 0000:5e:00.0 has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:5e:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus and is "
        "not "
        "responding to commands.",
    };
    for (int i = 0; i < BL_COUNT(lines); i++) {
        bl_kernel_event e = read_kernel(lines[i]);
        assert_int_equal(e.kind, BL_KERNEL_OFF_BUS);
        assert_int_equal(e.code, 79);
        e.pci.function = -1;
        assert_pci(e.pci, "0000:5e:00");
    }
}

static void other_lines_of_the_driver_are_told_apart(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1474)");
    assert_int_equal(e.kind, BL_KERNEL_RM_INIT);
    assert_pci(e.pci, "0000:3b:00.0");
    e = read_kernel("NVRM: rm_init_adapter failed, device minor number 0");
    assert_int_equal(e.kind, BL_KERNEL_RM_INIT);
    assert_pci(e.pci, "unknown");
    e = read_kernel("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.45.04");
    assert_int_equal(e.kind, BL_KERNEL_LOAD);
    assert_int_equal(read_kernel("[    0.000000] Linux version 6.1.0-18-amd64").kind, BL_KERNEL_BOOT);
    assert_int_equal(read_kernel("NVRM: The NVIDIA probe routine failed for 1 device(s).").kind, BL_KERNEL_NONE);
    bl_kernel_reader reader = {0};
    static const char serial[] = "NVRM: GPU Board Serial Number: 1650000000456";
    assert_true(bl_kernel_feed(&reader, ten_lines[0], (int64_t)strlen(ten_lines[0]), 1, &e));
    assert_true(bl_kernel_feed(&reader, serial, sizeof serial - 1, 2, &e));
    assert_int_equal(e.kind, BL_KERNEL_SERIAL);
    ASSERT_TEXT(e.serial, "1650000000456");
    assert_pci(e.pci, "0000:3b:00");
}

static void pcie_and_iommu_errors_name_their_device(void **state)
{
    (void)state;
    bl_kernel_event e =
        read_kernel("[20411.660102] pcieport 0000:5d:01.0: AER: Uncorrected (Fatal) error received: 0000:5d:01.0");
    assert_int_equal(e.kind, BL_KERNEL_AER);
    assert_pci(e.pci, "0000:5d:01.0");
    assert_int_equal(e.severity, BL_KERNEL_FATAL);
    e = read_kernel("nvidia 0000:5e:00.0: AER: can't recover (no error_detected callback)");
    assert_int_equal(e.kind, BL_KERNEL_AER);
    assert_pci(e.pci, "0000:5e:00.0");
    e = read_kernel("nvidia 0000:5e:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer");
    assert_int_equal(e.severity, BL_KERNEL_FATAL);
    e = read_kernel("pcieport 0000:5d:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)");
    assert_int_equal(e.severity, BL_KERNEL_CORRECTABLE);
    e = read_kernel("pcieport 0000:5d:01.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer");
    assert_int_equal(e.severity, BL_KERNEL_NONFATAL);
    e = read_kernel(
        "nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0023 address=0x6f255910000 flags=0x0020]");
    assert_int_equal(e.kind, BL_KERNEL_IOMMU);
    assert_pci(e.pci, "0000:41:00.0");
    assert_true(e.address == UINT64_C(0x6f255910000));
    e = read_kernel(
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=61:00.0 domain=0x000e address=0x00000000fdf80000 flags=0x0020]");
    assert_pci(e.pci, "0000:61:00.0");
    e = read_kernel("DMAR: [DMA Write] Request device [0000:41:00.0] fault addr 0xdeadb000 [fault reason 05] PTE Write "
                    "access is not set");
    assert_int_equal(e.kind, BL_KERNEL_IOMMU);
    assert_pci(e.pci, "0000:41:00.0");
    assert_true(e.address == UINT64_C(0xdeadb000));
}

static void an_amd_fault_gets_its_address_from_the_next_line(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "amdgpu 0000:03:00.0: amdgpu: [gfxhub0] page fault (src_id:0 ring:24 vmid:3 pasid:32770, for process python3 "
        "pid 4242 "
        "thread python3 pid 4250)",
        "amdgpu 0000:03:00.0: amdgpu:   in page starting at address 0x00007f1234567000 from client 0x1b (UTCL2)",
    };
    bl_kernel_reader reader = {0};
    bl_kernel_event e;
    assert_true(bl_kernel_feed(&reader, lines[0], (int64_t)strlen(lines[0]), 1, &e));
    assert_int_equal(e.kind, BL_KERNEL_AMD_FAULT);
    assert_int_equal(e.pid, 4242);
    ASSERT_TEXT(e.name, "python3");
    assert_true(bl_kernel_feed(&reader, lines[1], (int64_t)strlen(lines[1]), 2, &e));
    assert_true(e.is_continuation);
    assert_true(e.address == UINT64_C(0x7f1234567000));
    assert_int_equal(e.pid, 4242);
    e = read_kernel(
        "Memory access fault by GPU node-2 (Agent handle: 0x55d0c0) on address 0x7f5a1c000000. Reason: Page not "
        "present or supervisor privilege.");
    assert_int_equal(e.kind, BL_KERNEL_AMD_ABORT);
    assert_int_equal(e.instance, 2);
    assert_true(e.address == UINT64_C(0x7f5a1c000000));
    ASSERT_TEXT(e.reason, "Page not present or supervisor privilege.");
    assert_int_equal(read_kernel("amdgpu 0000:03:00.0: amdgpu: GPU reset begin!").kind, BL_KERNEL_AMD_RESET);
    assert_int_equal(read_kernel("amdgpu 0000:03:00.0: amdgpu: SMU is initialized successfully!").kind, BL_KERNEL_NONE);
}

static void ended_processes_have_pid_and_name(void **state)
{
    (void)state;
    bl_kernel_event e =
        read_kernel("[1.0] Out of memory: Killed process 4242 (python 3) total-vm:99kB, anon-rss:1234kB, "
                    "file-rss:0kB");
    assert_int_equal(e.kind, BL_KERNEL_OOM_KILL);
    assert_int_equal(e.pid, 4242);
    ASSERT_TEXT(e.name, "python 3");
    assert_int_equal(e.anon_kb, 1234);
    assert_false(e.in_cgroup);
    assert_true(read_kernel("Memory cgroup out of memory: Killed process 1 (a) anon-rss:5kB").in_cgroup);
    e = read_kernel(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,task_memcg=/y,task=python,pid=4242,uid=0");
    assert_true(e.in_cgroup && e.is_detail);
    assert_int_equal(e.pid, 4242);
    e = read_kernel("[1.0] my [odd] prog[77]: segfault at 10 ip 00007f7ff443857a sp 00007ffdae0bfc37 error 4 in "
                    "libcuda.so.1[7f682d7d4bd9+378000]");
    assert_int_equal(e.kind, BL_KERNEL_SEGFAULT);
    assert_int_equal(e.pid, 77);
    ASSERT_TEXT(e.name, "my [odd] prog");
    assert_true(e.address == 0x10);
    ASSERT_TEXT(e.reason, "libcuda.so.1[7f682d7d4bd9+378000]");
    e = read_kernel("traps: python[77] general protection fault ip:7f00 sp:7f11 error:0 in libc.so.6[7f00+1000]");
    assert_int_equal(e.kind, BL_KERNEL_SEGFAULT);
    assert_int_equal(e.pid, 77);
    e = read_kernel("INFO: task python:4242 blocked for more than 120 seconds.");
    assert_int_equal(e.kind, BL_KERNEL_HUNG_TASK);
    assert_int_equal(e.pid, 4242);
    assert_int_equal(e.seconds, 120);
}

static void memory_of_the_host_is_told_apart_by_whether_it_was_corrected(void **state)
{
    (void)state;
    bl_kernel_event e =
        read_kernel("EDAC MC1: 1 CE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0 slot:0)");
    assert_int_equal(e.kind, BL_KERNEL_HOST_MEMORY);
    assert_int_equal(e.n_corrected, 1);
    assert_int_equal(e.n_uncorrected, -1);
    e = read_kernel("EDAC MC1: 2 UE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0");
    assert_int_equal(e.n_uncorrected, 2);
    e = read_kernel("Memory failure: 0x1a2b3: Sending SIGBUS to python:4242 due to hardware memory corruption");
    assert_int_equal(e.pid, 4242);
    ASSERT_TEXT(e.name, "python");
}

/* ---- PCI addresses ------------------------------------------------------------------------------------------------------- */

static void addresses_are_read_and_compared(void **state)
{
    (void)state;
    bl_pci a, b;
    assert_true(bl_pci_read("PCI:0000:3B:00", 14, &a));
    assert_true(bl_pci_read("0000:3b:00.0", 12, &b));
    assert_true(bl_pci_is_same(a, b));
    assert_true(bl_pci_read("3b:00.1", 7, &a));
    assert_false(bl_pci_is_same(a, b));
    assert_false(bl_pci_read("3b:00.9", 7, &a));
    assert_false(bl_pci_read("0000:3b", 7, &a));
    assert_false(bl_pci_read("", 0, &a));
    assert_false(bl_pci_is_same((bl_pci){0}, (bl_pci){0}));
}

/* ---- hostile lines ------------------------------------------------------------------------------------------------------- */

/* A line cut at every byte, each in memory of its own size, so that a sanitizer sees a read behind it. */
static void a_line_may_end_anywhere(void **state)
{
    (void)state;
    static const char *const others[] = {
        "NVRM: Xid (PCI:0000:86:00): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP! "
        "Expected "
        "function 76 (GSP_RM_CONTROL) sequence 12 (0x1 0x4).",
        "amdgpu 0000:03:00.0: amdgpu: [gfxhub0] page fault (src_id:0 ring:24 vmid:3 pasid:32770, for process python3 "
        "pid 4242)",
        "oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=4242,uid=0",
        "traps: python[77] general protection fault ip:7f00 sp:7f11 error:0",
        "DMAR: [DMA Write] Request device [0000:41:00.0] fault addr 0xdeadb000 [fault reason 05]",
        "kern  :err   : 2024-10-19T02:14:24,101230+00:00 node kernel: [ 12.1] NVRM: GPU 0000:3b:00.0: RmInitAdapter "
        "failed!",
    };
    for (int i = 0; i < BL_COUNT(ten_lines) + BL_COUNT(others); i++) {
        const char *line = i < BL_COUNT(ten_lines) ? ten_lines[i] : others[i - BL_COUNT(ten_lines)];
        for (size_t n = 0; n <= strlen(line); n++) {
            char *copy = malloc(n > 0 ? n : 1);
            memcpy(copy, line, n);
            bl_kernel_event e;
            bl_kernel_read(copy, (int64_t)n, &e);
            assert_true(e.message.n_bytes >= 0 && e.message.n_bytes <= (int64_t)n);
            free(copy);
        }
    }
}

static void numbers_beyond_their_range_are_left_out(void **state)
{
    (void)state;
    bl_kernel_event e = read_kernel("NVRM: Xid (PCI:0000:3b:00): 31, Ch fffffffff, intr 0");
    assert_int_equal(e.channel, -1);
    e = read_kernel("NVRM: Xid (PCI:0000:3b:00): 31, Ch 00000001, intr 0. MMU Fault: ENGINE X Y faulted @ "
                    "0xfffffffff_00000000. Fault is of type Z");
    assert_false(e.has_address);
    e = read_kernel("NVRM: Xid (PCI:0000:3b:00): 31, Ch 00000001, intr 0. MMU Fault: ENGINE X Y faulted @ "
                    "0xffffffff_ffffffff. Fault is of type Z");
    assert_true(e.has_address && e.address == UINT64_MAX);
    e = read_kernel("NVRM: Xid (PCI:0000:3b:00): 13, Graphics SM Warp Exception on (GPC 999999999999, TPC 1, SM 1): x");
    assert_int_equal(e.gpc, -1);
    assert_false(e.message_fits);
    e = read_kernel("NVRM: Xid (PCI:0000:3b:00): 149, NETIR Fatal XC0 i0 Link 99999999 (0x1)");
    assert_int_equal(e.link, -1);
    e = read_kernel(
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0xffffffffffffffff (All)");
    assert_int_equal(e.to, BL_N_RECOVERIES);
    e = read_kernel("Out of memory: Killed process 99999999999 (x) total");
    assert_int_equal(e.kind, BL_KERNEL_NONE);
}

static void long_names_of_commas_end(void **state)
{
    (void)state;
    enum { n = 60000 };
    char *line = malloc(n + 1);
    int at = snprintf(line, n, "NVRM: Xid (PCI:0000:3b:00): 13, pid=7, name=");
    while (at < n)
        at += snprintf(line + at, (size_t)n - (size_t)at + 1, ", ");
    bl_kernel_event e;
    assert_true(bl_kernel_read(line, n, &e));
    assert_true(e.name_is_uncertain);
    assert_int_equal(e.name.n_bytes, 0);
    free(line);
}

static void bytes_that_are_no_text_stay_bytes(void **state)
{
    (void)state;
    static const char line[] = "NVRM: Xid (PCI:0000:3b:00): 43, pid=7, name=\0\xff\x1b[31m, Ch 00000001";
    bl_kernel_event e;
    assert_true(bl_kernel_read(line, sizeof line - 1, &e));
    assert_int_equal(e.name.n_bytes, 7);
    assert_int_equal(e.channel, 1);
}

static void colours_do_not_hide_a_line(void **state)
{
    (void)state;
    static const char raw[] =
        "\x1b[32m[ 8123.400112] \x1b[0m\x1b[33mNVRM: \x1b[0mXid (PCI:0000:86:00): 79, GPU has fallen off "
        "the bus.\r\n";
    char scratch[256];
    bl_line line = {.number = 1};
    bl_kernel_reader reader = {0};
    bl_kernel_event e;
    bl_line_parse(NULL, raw, sizeof raw - 1, scratch, &line);
    assert_true(bl_kernel_feed_line(&reader, &line, &e));
    assert_int_equal(e.code, 79);
    assert_int_equal(line.time_kind, BL_TIME_BOOT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_1_tells_the_identity_of_a_gpu_and_is_no_xid),
        cmocka_unit_test(line_2_has_address_fault_type_access_and_client),
        cmocka_unit_test(line_3_names_the_xid_that_caused_it),
        cmocka_unit_test(line_4_has_a_mig_instance_and_a_comma_in_its_name),
        cmocka_unit_test(line_5_has_an_unknown_pid_and_a_physical_address),
        cmocka_unit_test(line_6_has_a_pid_without_a_name),
        cmocka_unit_test(line_7_has_no_pid),
        cmocka_unit_test(line_8_has_link_severity_and_sub_code),
        cmocka_unit_test(line_9_changes_the_recovery_action),
        cmocka_unit_test(line_10_is_of_a_switch),
        cmocka_unit_test(every_usual_prefix_is_taken_off),
        cmocka_unit_test(a_syslog_prefix_tells_the_host),
        cmocka_unit_test(the_trace_point_is_read_with_its_function_number),
        cmocka_unit_test(a_mig_line_is_an_xid_like_any_other),
        cmocka_unit_test(an_nvlink_line_needs_no_numeric_pid),
        cmocka_unit_test(the_word_xid_in_prose_is_no_event),
        cmocka_unit_test(a_name_that_no_message_follows_is_uncertain),
        cmocka_unit_test(the_shortest_name_that_fits_is_taken),
        cmocka_unit_test(a_cut_or_impossible_pid_is_none),
        cmocka_unit_test(the_very_old_form_is_read),
        cmocka_unit_test(a_code_that_is_in_no_table_is_still_an_event),
        cmocka_unit_test(sm_exceptions_tell_reason_and_place),
        cmocka_unit_test(register_lines_of_an_exception_are_details),
        cmocka_unit_test(mmu_faults_come_in_both_channel_forms),
        cmocka_unit_test(every_fault_type_and_access_is_read),
        cmocka_unit_test(memory_errors_tell_address_and_unit),
        cmocka_unit_test(the_other_shapes_are_read),
        cmocka_unit_test(a_switch_line_has_text_instance_and_continuations),
        cmocka_unit_test(three_lines_say_that_a_gpu_fell_off_the_bus),
        cmocka_unit_test(one_line_says_it_too),
        cmocka_unit_test(other_lines_of_the_driver_are_told_apart),
        cmocka_unit_test(pcie_and_iommu_errors_name_their_device),
        cmocka_unit_test(an_amd_fault_gets_its_address_from_the_next_line),
        cmocka_unit_test(ended_processes_have_pid_and_name),
        cmocka_unit_test(memory_of_the_host_is_told_apart_by_whether_it_was_corrected),
        cmocka_unit_test(addresses_are_read_and_compared),
        cmocka_unit_test(a_line_may_end_anywhere),
        cmocka_unit_test(numbers_beyond_their_range_are_left_out),
        cmocka_unit_test(long_names_of_commas_end),
        cmocka_unit_test(bytes_that_are_no_text_stay_bytes),
        cmocka_unit_test(colours_do_not_hide_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
