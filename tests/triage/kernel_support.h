/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of kernel logs share. */
#ifndef TESTS_TRIAGE_KERNEL_SUPPORT_H
#define TESTS_TRIAGE_KERNEL_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "triage/gpu.h"
#include "triage/signal.h"

#define ASSERT_TEXT(text, expected)                                                                                    \
    do {                                                                                                               \
        assert_int_equal((text).n_bytes, strlen(expected));                                                            \
        assert_memory_equal((text).n_bytes == 0 ? "" : (text).bytes, expected, (size_t)(text).n_bytes);                \
    } while (0)

/* The ten example lines of the grammar. */
static const char *const ten_lines[] = {
    "[ 8123.400112] NVRM: GPU at PCI:0000:3b:00: GPU-5e1f0a2c-1111-2222-3333-444455556666",
    "[ 8123.400131] NVRM: Xid (PCI:0000:3b:00): 31, pid=41207, name=belay, Ch 00000018, intr 00000000. MMU Fault: "
    "ENGINE GRAPHICS GPC2 GPCCLIENT_T1_5 faulted @ 0x7e2a_4c600000. Fault is of type FAULT_PTE ACCESS_TYPE_VIRT_READ",
    "[ 8123.401870] NVRM: Xid (PCI:0000:3b:00): 45, pid=41207, name=belay, Ch 00000018 caused by previous Xid 31",
    "[ 9050.112000] NVRM: Xid (PCI:0000:5e:00 GPU-I:05 GPU-CI:00): 13, pid=52310, name=my job, v2, Graphics SM Warp "
    "Exception on (GPC 1, TPC 3, SM 0): Misaligned Address",
    "[ 9761.002201] NVRM: Xid (PCI:0000:86:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error "
    "(DBE) has been detected on GPU in the framebuffer at physAddr 0x1a2b3c000 partition 4, subpartition 1.",
    "[ 9761.002950] NVRM: Xid (PCI:0000:86:00): 94, pid=60011, Contained: CE User Channel (0x9). RST: No, D-RST: No",
    "[ 9800.550000] NVRM: Xid (PCI:0000:86:00): 79, GPU has fallen off the bus.",
    "[10002.018400] NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x025001c6 0x00000000 "
    "0x00000000 0x00000000 0x00000000 0x00000000)",
    "[10002.019900] NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset "
    "Required)",
    "[10100.700000] nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
};

/* Behind the first MiB of a log only lines with an anchor are looked at, and what is an event for the fold must be one of
 * them: the anchors of this row say which.  Other rows have the kernel's words about processes and the host's memory. */
static inline void assert_anchored(const char *line, bl_kernel_kind kind)
{
    char anchor[64];
    bool is_found = kind == BL_KERNEL_NONE || kind >= BL_KERNEL_OOM_KILL;
    for (const char *at = bl_signals[BL_SIGNAL_kernlog_line].anchors; !is_found && *at != '\0'; at += *at == '\n') {
        size_t n = strcspn(at, "\n");
        assert_true(n < sizeof anchor);
        snprintf(anchor, sizeof anchor, "%.*s", (int)n, at);
        is_found = strstr(line, anchor) != NULL;
        at += n;
    }
    if (!is_found)
        fail_msg("no anchor of kernlog_line stands in: %s", line);
}

/* The event of a line; the line must outlive it. */
static inline bl_kernel_event read_kernel(const char *line)
{
    bl_kernel_event event;
    bl_kernel_read(line, (int64_t)strlen(line), &event);
    assert_anchored(line, event.kind);
    return event;
}

static inline void assert_pci(bl_pci pci, const char *expected)
{
    char words[BL_PCI_WORDS];
    assert_string_equal(bl_pci_describe(pci, words), expected);
}

/* Feeds lines to a fold as file number `file`; the time comes from the line's own stamp. */
static inline void fold_lines(bl_gpu_fold *fold, int file, const char *const *lines, int n_lines)
{
    bl_kernel_reader reader = {0};
    bl_line_style style;
    bl_line_style_init(&style, "dmesg.txt");
    for (int i = 0; i < n_lines; i++)
        bl_line_style_learn(&style, lines[i], (int64_t)strlen(lines[i]));
    bl_line_style_settle(&style);
    for (int i = 0; i < n_lines; i++) {
        char scratch[2048];
        bl_line line = {.file = file, .number = i + 1};
        bl_kernel_event event;
        bl_line_parse(&style, lines[i], (int64_t)strlen(lines[i]), scratch, &line);
        bl_gpu_place place = {file, line.number, line.time, line.time_kind};
        if (!bl_kernel_feed_line(&reader, &line, &event))
            continue;
        assert_anchored(lines[i], event.kind);
        assert_true(bl_gpu_fold_add(fold, &event, place));
    }
}

#endif
