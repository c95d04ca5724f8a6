/* SPDX-License-Identifier: Apache-2.0 */
/* The inner messages of Xid lines, by code.  Each shape either fits, and then all that it tells is in the event, or does
 * not; numbers that do not fit their range are left out. */
#include "triage/kernel_parts.h"

static bool text_is(bl_kernel_text text, const char *word)
{
    return text.n_bytes == (int64_t)strlen(word) && memcmp(text.bytes, word, strlen(word)) == 0;
}

static bool text_begins(bl_kernel_text text, const char *word)
{
    return text.n_bytes >= (int64_t)strlen(word) && memcmp(text.bytes, word, strlen(word)) == 0;
}

static void set_address(bl_kernel_event *event, uint64_t address, bool is_physical)
{
    event->has_address = true;
    event->address = address;
    event->is_physical = is_physical;
}

/* ---- channels ---------------------------------------------------------------------------------------------------- */

/* "Ch 00000018", "channel 0x18", "Channel 00000018", "Channel ID 00000018" */
static bool read_channel(bl_cursor *c, bl_kernel_event *event)
{
    bl_cursor in = *c;
    uint64_t channel;
    if (bl_cursor_take(&in, "channel ")) {
        if (!bl_cursor_0x(&in, &channel))
            return false;
    } else if (bl_cursor_take(&in, "Ch ") || bl_cursor_take(&in, "Channel ID ") || bl_cursor_take(&in, "Channel ")) {
        if (!bl_cursor_hex(&in, 1, 8, &channel))
            return false;
    } else {
        return false;
    }
    if (in.at < in.end && bl_byte_is_word(*in.at))
        return false;
    event->channel = channel <= INT64_MAX ? (int64_t)channel : -1;
    *c = in;
    return true;
}

/* A channel and what any code may print behind it: ", errorString CTX SWITCH TIMEOUT, Info 0x3c046" */
static bool read_any(bl_cursor c, bl_kernel_event *event)
{
    if (!read_channel(&c, event))
        return false;
    if (bl_cursor_take(&c, ", errorString ")) {
        bl_cursor rest = c;
        if (!bl_kernel_until(&rest, ", Info ", &event->reason))
            event->reason = bl_kernel_rest(&c);
    }
    return true;
}

static bool read_removal(bl_cursor c, bl_kernel_event *event)
{
    if (!read_channel(&c, event))
        return false;
    uint64_t cause;
    if (bl_cursor_take(&c, " caused by previous Xid ") && bl_cursor_decimal(&c, 9999, &cause))
        event->cause = (int64_t)cause;
    return true;
}

/* ---- 13 ---------------------------------------------------------------------------------------------------------- */

static bl_sm_reason reason_of(bl_kernel_text text)
{
    static const struct {
        const char *words;
        bl_sm_reason reason;
    } reasons[] = {
        {"Out Of Range Address", BL_SM_OUT_OF_RANGE},
        {"Out Of Range Register", BL_SM_OTHER},
        {"Misaligned Address", BL_SM_MISALIGNED},
        {"Illegal Instruction", BL_SM_ILLEGAL_INSTRUCTION},
        {"Invalid Address Space", BL_SM_INVALID_SPACE},
        {"Misaligned PC", BL_SM_INVALID_PC},
        {"Invalid PC", BL_SM_INVALID_PC},
        {"Misaligned Reg", BL_SM_OTHER},
        {"Multiple Warp Errors", BL_SM_MULTIPLE},
        {"API Stack Error", BL_SM_STACK},
        {"Stack Error", BL_SM_STACK},
        {"Stack Overflow", BL_SM_STACK},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (text_begins(text, reasons[i].words))
            return reasons[i].reason;
    return BL_SM_OTHER;
}

/* "(GPC 1, TPC 3, SM 0)", of which later ones may be missing */
static bool read_place(bl_cursor *c, bl_kernel_event *event)
{
    bl_cursor in = *c;
    if (!bl_cursor_take(&in, "(GPC ") || !bl_cursor_small(&in, 255, &event->gpc))
        return false;
    if (bl_cursor_take(&in, ", TPC ") && !bl_cursor_small(&in, 255, &event->tpc))
        return false;
    if (bl_cursor_take(&in, ", SM ") && !bl_cursor_small(&in, 255, &event->sm))
        return false;
    if (!bl_cursor_take(&in, ")"))
        return false;
    *c = in;
    return true;
}

static bool read_sm_exception(bl_cursor c, bl_kernel_event *event)
{
    event->is_global = bl_cursor_take(&c, "Global Exception on ");
    if (!event->is_global && !bl_cursor_take(&c, "Warp Exception on "))
        return false;
    if (!read_place(&c, event) || !bl_cursor_take(&c, ": "))
        return false;
    event->reason = bl_kernel_rest(&c);
    event->sm_reason = reason_of(event->reason);
    return true;
}

static bool read_graphics(bl_cursor c, bl_kernel_event *event)
{
    if (bl_cursor_take(&c, "Graphics SM "))
        return read_sm_exception(c, event);
    if (!bl_cursor_take(&c, "Graphics Exception"))
        return read_any(c, event);
    if (bl_cursor_take(&c, " on ") && !read_place(&c, event))
        return false;
    if (!bl_cursor_take(&c, ": "))
        return false;
    event->is_detail = bl_cursor_sees(&c, "ESR 0x") || bl_cursor_sees(&c, "ChID ");
    if (!event->is_detail) {
        event->reason = bl_kernel_rest(&c);
        event->sm_reason = reason_of(event->reason);
    }
    return true;
}

/* ---- 31 ---------------------------------------------------------------------------------------------------------- */

static bl_mmu_type type_of(bl_kernel_text text)
{
    static const struct {
        const char *word;
        bl_mmu_type type;
    } types[] = {
        {"FAULT_PDE", BL_MMU_PDE},
        {"FAULT_PDE_SIZE", BL_MMU_PDE_SIZE},
        {"FAULT_PTE", BL_MMU_PTE},
        {"FAULT_VA_LIMIT_VIOLATION", BL_MMU_VA_LIMIT},
        {"FAULT_UNBOUND_INST_BLOCK", BL_MMU_UNBOUND},
        {"FAULT_PRIV_VIOLATION", BL_MMU_PRIV},
        {"FAULT_RO_VIOLATION", BL_MMU_READ_ONLY},
        {"FAULT_INFO_TYPE_POISONED", BL_MMU_POISONED},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (text_is(text, types[i].word))
            return types[i].type;
    return BL_MMU_OTHER;
}

static bl_mmu_client client_of(bl_kernel_text text)
{
    if (text_begins(text, "GPCCLIENT_T1_"))
        return BL_CLIENT_SM;
    if (text_begins(text, "GPCCLIENT_"))
        return BL_CLIENT_GPC_OTHER;
    if (text_begins(text, "HUBCLIENT_CE") && text.n_bytes > 12 && bl_byte_is_digit(text.bytes[12]))
        return BL_CLIENT_COPY_ENGINE;
    return text_begins(text, "HUBCLIENT_") ? BL_CLIENT_HUB_OTHER : BL_CLIENT_NONE;
}

static bl_mmu_access access_of(bl_kernel_text text, bool *is_physical)
{
    bl_cursor c = {text.bytes, text.bytes + text.n_bytes};
    if (!bl_cursor_take(&c, "ACCESS_TYPE_"))
        return BL_ACCESS_NONE;
    *is_physical = bl_cursor_take(&c, "PHYS_");
    if (!*is_physical)
        bl_cursor_take(&c, "VIRT_");
    bl_kernel_text word = bl_kernel_text_of(c.at, c.end);
    if (text_begins(word, "READ"))
        return BL_ACCESS_READ;
    if (text_begins(word, "WRITE"))
        return BL_ACCESS_WRITE;
    if (text_begins(word, "ATOMIC"))
        return BL_ACCESS_ATOMIC;
    return text_begins(word, "PREFETCH") ? BL_ACCESS_PREFETCH : BL_ACCESS_NONE;
}

/* "0x7e2a_4c600000", high and low word; or the whole as one number */
static bool read_split_address(bl_cursor *c, uint64_t *out)
{
    bl_cursor in = *c;
    uint64_t high, low;
    if (!bl_cursor_0x(&in, &high))
        return false;
    if (bl_cursor_take(&in, "_")) {
        if (high > UINT32_MAX || !bl_cursor_hex(&in, 8, 8, &low))
            return false;
        high = high << 32 | low;
    }
    *c = in;
    *out = high;
    return true;
}

/* "GRAPHICS GPC2 GPCCLIENT_T1_5 " up to "faulted @" */
static void read_units(bl_cursor c, bl_kernel_event *event)
{
    if (!bl_kernel_token(&c, &event->engine))
        return;
    bl_kernel_text token;
    for (bl_cursor_skip_blanks(&c); bl_kernel_token(&c, &token); bl_cursor_skip_blanks(&c)) {
        bl_cursor number = {token.bytes, token.bytes + token.n_bytes};
        int gpc;
        if (bl_cursor_take(&number, "GPC") && bl_cursor_small(&number, 255, &gpc) && number.at == number.end)
            event->gpc = gpc;
        else
            event->client = token;
    }
    event->client_kind = client_of(event->client);
}

static bool read_mmu_fault(bl_cursor c, bl_kernel_event *event)
{
    if (!read_channel(&c, event))
        return false;
    bl_kernel_text units, access;
    if (!bl_cursor_pass(&c, "MMU Fault: ENGINE ") || !bl_kernel_until(&c, " faulted @ ", &units))
        return true;
    read_units((bl_cursor){units.bytes, units.bytes + units.n_bytes}, event);
    uint64_t address;
    if (read_split_address(&c, &address))
        set_address(event, address, false);
    if (!bl_cursor_pass(&c, "Fault is of type ") || !bl_kernel_token(&c, &event->fault_text))
        return true;
    event->fault_type = type_of(event->fault_text);
    bl_cursor_skip_blanks(&c);
    if (bl_kernel_token(&c, &access))
        event->access = access_of(access, &event->is_physical);
    return true;
}

/* ---- memory: 48, 63, 64, 94, 95, 140 --------------------------------------------------------------------------- */

static void read_number_behind(bl_cursor c, const char *words, int64_t most, int64_t *out)
{
    if (bl_cursor_pass(&c, words))
        bl_cursor_count(&c, most, out);
}

static void read_address_behind(bl_cursor c, const char *words, bl_kernel_event *event)
{
    uint64_t address;
    if (bl_cursor_pass(&c, words) && bl_cursor_0x(&c, &address))
        set_address(event, address, true);
}

static bool read_double_bit(bl_cursor c, bl_kernel_event *event)
{
    if (!bl_cursor_sees(&c, "An uncorrectable ") && !bl_cursor_sees(&c, "DBE "))
        return false;
    read_address_behind(c, "physAddr ", event);
    read_number_behind(c, " partition ", UINT16_MAX, &event->partition);
    read_number_behind(c, "subpartition ", UINT16_MAX, &event->subpartition);
    return true;
}

static bool read_retirement(bl_cursor c, bl_kernel_event *event)
{
    event->is_row_remap = bl_cursor_sees(&c, "Row Remapper");
    if (!event->is_row_remap && !bl_cursor_sees(&c, "Dynamic Page Retirement") &&
        !bl_cursor_sees(&c, "Page Retirement"))
        return false;
    read_address_behind(c, "(", event);
    return true;
}

static bool read_retirement_failure(bl_cursor c, bl_kernel_event *event)
{
    event->reason = bl_kernel_rest(&c);
    return read_retirement(c, event) || bl_cursor_find(&c, "ailed to record") != NULL;
}

static int read_yes(bl_cursor c, const char *words)
{
    if (!bl_cursor_pass(&c, words))
        return -1;
    return bl_cursor_sees(&c, "Yes") ? 1 : bl_cursor_sees(&c, "No") ? 0 : -1;
}

static bool read_containment(bl_cursor c, const char *word, bl_kernel_event *event)
{
    if (!bl_cursor_take(&c, word))
        return false;
    const char *open = bl_cursor_find(&c, " (");
    event->reason = open != NULL ? bl_kernel_text_of(c.at, open) : bl_kernel_rest(&c);
    read_address_behind(c, "physAddr: ", event);
    event->needs_reset = read_yes(c, " RST: ");
    event->needs_drain = read_yes(c, "D-RST: ");
    return true;
}

static bool read_escape(bl_cursor c, bl_kernel_event *event)
{
    if (!bl_cursor_sees(&c, "An uncorrectable ECC error detected"))
        return false;
    read_number_behind(c, "DRAM:", INT32_MAX, &event->n_dram);
    read_number_behind(c, "LTC:", INT32_MAX, &event->n_ltc);
    read_number_behind(c, "MMU:", INT32_MAX, &event->n_mmu);
    read_number_behind(c, "PCIE:", INT32_MAX, &event->n_pcie);
    return true;
}

/* ---- 62, 119, 154 ----------------------------------------------------------------------------------------------- */

/* Hex words, of which one may stand in parentheses behind another; at least two of them. */
static bool read_words(bl_cursor c, bl_kernel_event *event)
{
    uint64_t word;
    int n = 0;
    while (c.at < c.end && n < 8) {
        while (c.at < c.end && (*c.at == ' ' || *c.at == '(' || *c.at == ')'))
            c.at++;
        bl_cursor_take(&c, "0x");
        if (!bl_cursor_hex(&c, 1, 8, &word))
            break;
        event->words[n++] = (uint32_t)word;
    }
    event->n_words = n;
    return n >= 2;
}

static bool read_rpc(bl_cursor c, bl_kernel_event *event)
{
    if (!bl_cursor_take(&c, "Timeout "))
        return false;
    if (bl_cursor_take(&c, "after "))
        bl_cursor_count(&c, INT32_MAX, &event->seconds);
    if (!bl_cursor_pass(&c, "GSP! Expected function "))
        return bl_cursor_find(&c, "GSP") != NULL;
    if (bl_cursor_count(&c, INT32_MAX, &event->function) && bl_cursor_take(&c, " ("))
        bl_kernel_until(&c, ")", &event->reason);
    if (bl_cursor_take(&c, " sequence "))
        bl_cursor_count(&c, INT64_MAX, &event->sequence);
    return true;
}

/* "0x1 (GPU Reset Required)" */
static bool read_action(bl_cursor *c, bl_recovery *action, bl_kernel_text *name)
{
    uint64_t value;
    if (!bl_cursor_0x(c, &value) || !bl_cursor_take(c, " (") || !bl_kernel_until(c, ")", name))
        return false;
    *action = value < BL_N_RECOVERIES ? (bl_recovery)value : BL_N_RECOVERIES;
    return true;
}

static bool read_recovery(bl_cursor c, bl_kernel_event *event)
{
    return bl_cursor_take(&c, "GPU recovery action changed from ") &&
           read_action(&c, &event->from, &event->from_name) && bl_cursor_take(&c, " to ") &&
           read_action(&c, &event->to, &event->to_name);
}

/* ---- links: 74, 136, 144-150 ------------------------------------------------------------------------------------ */

static bool read_link(bl_cursor c, bl_kernel_event *event)
{
    if (!bl_cursor_take(&c, "NVLink"))
        return false;
    read_number_behind(c, " link ", UINT16_MAX, &event->link);
    if (bl_cursor_find(&c, "fatal error") != NULL && bl_cursor_find(&c, "non-fatal") == NULL &&
        bl_cursor_find(&c, "nonfatal") == NULL)
        event->severity = BL_KERNEL_FATAL;
    return true;
}

static bool read_unit(bl_cursor *c, bl_kernel_text *out)
{
    const char *begin = c->at;
    while (c->at < c->end && (bl_byte_is_word(*c->at) || *c->at == '/'))
        c->at++;
    *out = bl_kernel_text_of(begin, c->at);
    return out->n_bytes > 0 && bl_cursor_take(c, " ");
}

/* "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x025001c6 0x00000000 ...)" */
static bool read_nvlink5(bl_cursor c, bl_kernel_event *event)
{
    int64_t ignored;
    if (!read_unit(&c, &event->unit))
        return false;
    event->severity = bl_cursor_take(&c, "Fatal")                                         ? BL_KERNEL_FATAL
                      : bl_cursor_take(&c, "Nonfatal") || bl_cursor_take(&c, "Non-fatal") ? BL_KERNEL_NONFATAL
                                                                                          : BL_KERNEL_SEVERITY_NONE;
    if (event->severity == BL_KERNEL_SEVERITY_NONE || !bl_cursor_take(&c, " XC") ||
        !bl_cursor_count(&c, 255, &event->xc) || !bl_cursor_take(&c, " i") || !bl_cursor_count(&c, 255, &ignored) ||
        !bl_cursor_take(&c, " Link "))
        return false;
    if (!bl_cursor_take(&c, "-1") && !bl_cursor_count(&c, UINT16_MAX, &event->link))
        return false;
    if (bl_cursor_take(&c, " (") && bl_cursor_0x(&c, &event->intrinfo)) {
        event->sub_code = bl_xid_nvlink_sub_code(event->intrinfo);
        if (bl_cursor_take(&c, " "))
            bl_cursor_0x(&c, &event->status);
    }
    return true;
}

/* ---- by code ----------------------------------------------------------------------------------------------------- */

static bool read_message(int64_t code, bl_cursor c, bl_kernel_event *event)
{
    switch (code) {
    case 13:
        return read_graphics(c, event);
    case 31:
        return read_mmu_fault(c, event);
    case 45:
        return read_removal(c, event);
    case 48:
        return read_double_bit(c, event);
    case 62:
        return read_words(c, event);
    case 63:
        return read_retirement(c, event);
    case 64:
        return read_retirement_failure(c, event);
    case 74:
    case 136:
    case 137:
        return read_link(c, event);
    case 79:
        return bl_cursor_sees(&c, "GPU has fallen off the bus");
    case 94:
        return read_containment(c, "Contained: ", event);
    case 95:
        return read_containment(c, "Uncontained: ", event);
    case 110:
        return bl_cursor_sees(&c, "SEC_FAULT");
    case 119:
        return read_rpc(c, event);
    case 120:
        return bl_cursor_sees(&c, "GSP ");
    case 140:
        return read_escape(c, event);
    case 154:
        return read_recovery(c, event);
    default:
        return code >= 144 && code <= 150 ? read_nvlink5(c, event) : read_any(c, event);
    }
}

bool bl_kernel_xid_message(int64_t code, bl_cursor c, bl_kernel_event *event)
{
    bl_kernel_event told = *event;
    if (!read_message(code, c, &told))
        return false;
    *event = told;
    return true;
}
