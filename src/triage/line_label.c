/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of ranks, and the hosts, programs and containers that stand in front of a text. */
#include "triage/line_parts.h"

enum { most_rank_digits = 6, longest_group = 200 };

char bl_line_take_level(bl_cursor *c)
{
    static const struct {
        const char *word;
        char level;
    } levels[] = {{"INFO", 'I'},  {"WARNING", 'W'},  {"WARN", 'W'},  {"ERROR", 'E'},
                  {"FATAL", 'F'}, {"CRITICAL", 'F'}, {"DEBUG", 'D'}, {"TRACE", 'D'}};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        bl_cursor d = *c;
        if (bl_take_word(&d, levels[i].word) && !bl_is_alnum(bl_peek(&d)) && bl_peek(&d) != '_') {
            *c = d;
            return levels[i].level;
        }
    }
    return '\0';
}

/* ---- ranks --------------------------------------------------------------------------------------------------- */

static void note_rank(bl_front *front, int64_t rank, bool is_global)
{
    bl_line *line = front->line;
    bool is_known = front->has_global_label || (front->style != NULL && front->style->rank >= 0);
    line->is_labeled = true;
    if (is_known && !is_global)
        return;
    line->rank = (int)rank;
    line->is_local_rank = !is_global;
    front->has_global_label |= is_global;
}

static bool take_any_word(bl_cursor *c, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (bl_take_word(c, words[i]))
            return true;
    return false;
}

/* "[rank3]:" and, of torchrun's roles with the rank on this host, "[default3]:". */
static bool take_named_rank(bl_front *front, bl_cursor *c)
{
    static const char *const globals[] = {"rank", "Rank", "RANK"};
    static const char *const locals[] = {"default",    "trainer",   "worker",  "local_rank",
                                         "local-rank", "localrank", "process", "proc"};
    bl_cursor d = *c;
    int64_t rank;
    if (!bl_take_char(&d, '['))
        return false;
    bool is_global = take_any_word(&d, globals, 3);
    if (!is_global && !take_any_word(&d, locals, (int)(sizeof locals / sizeof locals[0])))
        return false;
    if (!is_global)
        (void)(bl_take_char(&d, '_') || bl_take_char(&d, '-'));
    if (!bl_take_digits(&d, 1, most_rank_digits, &rank) || !bl_take_char(&d, ']'))
        return false;
    if (!bl_take_char(&d, ':') && (!is_global || bl_is_alnum(bl_peek(&d))))
        return false;
    (void)bl_take_char(&d, ' ');
    note_rank(front, rank, is_global);
    *c = d;
    return true;
}

/* "[1,3]<stdout>:", "[3]<stderr>:", "[prterun-host-12@1,3]<stdout>: ". */
static bool take_mpi_rank(bl_front *front, bl_cursor *c)
{
    bl_cursor d = *c, job;
    int64_t first, rank;
    if (!bl_take_char(&d, '['))
        return false;
    job = d;
    while (job.at < job.end && job.at - d.at < longest_group && (bl_is_alnum(*job.at) || bl_is_one_of(*job.at, "-_.")))
        job.at++;
    if (job.at > d.at && bl_take_char(&job, '@'))
        d = job;
    if (!bl_take_digits(&d, 1, 10, &first))
        return false;
    rank = first;
    if (bl_take_char(&d, ',') && !bl_take_digits(&d, 1, most_rank_digits, &rank))
        return false;
    if (rank >= 1000000 || !bl_take_word(&d, "]<std"))
        return false;
    if ((!bl_take_word(&d, "out") && !bl_take_word(&d, "err") && !bl_take_word(&d, "diag")) || !bl_take_word(&d, ">:"))
        return false;
    (void)bl_take_char(&d, ' ');
    note_rank(front, rank, true);
    *c = d;
    return true;
}

/* "[gpu07:mpi_rank_3]" of MVAPICH, and "Rank 3 " before "[Tue Mar  3 ..]" of Cray's MPI, whose stamp stays. */
static bool take_host_rank(bl_front *front, bl_cursor *c)
{
    bl_cursor d = *c;
    int64_t rank;
    if (bl_take_char(&d, '[')) {
        while (d.at < d.end && d.at - c->at < longest_group && (bl_is_alnum(*d.at) || bl_is_one_of(*d.at, "-_.")))
            d.at++;
        if (!bl_take_word(&d, ":mpi_rank_") || !bl_take_digits(&d, 1, most_rank_digits, &rank) ||
            !bl_take_char(&d, ']'))
            return false;
        (void)bl_take_char(&d, ' ');
    } else {
        if (!bl_take_word(&d, "Rank ") || !bl_take_digits(&d, 1, most_rank_digits, &rank) || !bl_take_char(&d, ' ') ||
            bl_peek(&d) != '[' || d.end - d.at < 5 || !bl_is_letter(d.at[1]) || !bl_is_letter(d.at[3]) ||
            d.at[4] != ' ')
            return false;
    }
    note_rank(front, rank, true);
    *c = d;
    return true;
}

/* " key=12" or ", key=12" inside of [from, end). */
static bool find_number(const char *from, const char *end, const char *key, int64_t *value)
{
    size_t n_key = strlen(key);
    for (const char *at = from; at + n_key < end; at++) {
        bl_cursor c = {at, end};
        if ((at == from || !bl_is_alnum(at[-1])) && bl_take_word(&c, key) && bl_take_digits(&c, 1, 10, value))
            return true;
    }
    return false;
}

/* "(RayTrainWorker pid=1234, ip=10.0.0.1) ", "(VllmWorker rank=3 pid=1234) ". */
static bool take_ray(bl_front *front, bl_cursor *c)
{
    bl_cursor d = *c;
    int64_t pid, rank;
    int depth = 0;
    if (bl_peek(&d) != '(')
        return false;
    const char *from = d.at + 1;
    for (; d.at < d.end && d.at - from < longest_group; d.at++) {
        depth += (*d.at == '(') - (*d.at == ')');
        if (depth == 0)
            break;
    }
    if (bl_peek(&d) != ')' || !find_number(from, d.at, "pid=", &pid))
        return false;
    front->line->pid = pid;
    if (find_number(from, d.at, "rank=", &rank) && rank < 1000000)
        note_rank(front, rank, true);
    d.at++;
    (void)bl_take_char(&d, ' ');
    *c = d;
    return true;
}

bool bl_line_take_number_colon(bl_cursor *c, int64_t *rank)
{
    bl_cursor d = *c;
    (void)bl_take_blanks(&d);
    if (d.at - c->at > 5 || !bl_take_digits(&d, 1, most_rank_digits, rank) || !bl_take_char(&d, ':'))
        return false;
    if (d.at < d.end && !bl_take_char(&d, ' '))
        return false;
    *c = d;
    return true;
}

bool bl_line_take_number_bracket(bl_cursor *c, int64_t *rank)
{
    bl_cursor d = *c;
    if (!bl_take_char(&d, '['))
        return false;
    (void)bl_take_blanks(&d);
    if (!bl_take_digits(&d, 1, most_rank_digits, rank) || !bl_take_char(&d, ']'))
        return false;
    if (d.at < d.end && !bl_take_char(&d, ' '))
        return false;
    *c = d;
    return true;
}

bool bl_line_take_label(bl_front *front, bl_cursor *c)
{
    const bl_line_style *style = front->style;
    int64_t rank;
    if (take_named_rank(front, c) || take_mpi_rank(front, c) || take_host_rank(front, c) || take_ray(front, c))
        return true;
    if (style == NULL || front->line->is_labeled)
        return false;
    if (!(style->is_numbered_colon && bl_line_take_number_colon(c, &rank)) &&
        !(style->is_numbered_bracket && bl_line_take_number_bracket(c, &rank)))
        return false;
    note_rank(front, rank, true);
    return true;
}

/* What stands before "rank" leaves it the rank among all, not that on a host. */
static bool is_rank_of_all(const char *from, const char *word)
{
    static const char *const before[] = {"g", "global_", "world_"};
    if (word == from || bl_is_one_of(word[-1], "[ ,("))
        return true;
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        int64_t n = (int64_t)strlen(before[i]);
        bool is_there = word - from >= n && memcmp(word - n, before[i], (size_t)n) == 0;
        if (is_there && (word - from == n || !bl_is_alnum(word[-n - 1])))
            return true;
    }
    return false;
}

/* The digits in front of a ']' that follow "rank" and at most two bytes of " :=". */
static int rank_before(const char *from, const char *bracket)
{
    const char *digits = bracket;
    while (digits > from && bl_is_digit(digits[-1]))
        digits--;
    bl_cursor c = {digits, bracket};
    int64_t rank;
    if (!bl_take_digits(&c, 1, most_rank_digits, &rank))
        return -1;
    const char *word = digits;
    while (word > from && digits - word < 2 && bl_is_one_of(word[-1], " :="))
        word--;
    if (word - from < 4 || memcmp(word - 3, "ank", 3) != 0 || (word[-4] != 'R' && word[-4] != 'r'))
        return -1;
    return is_rank_of_all(from, word - 4) ? (int)rank : -1;
}

/* "rank=3 ..", "rank: 3, ..", "Rank 3: .." at the beginning of a text, where its writer says who it is. */
static int rank_in_front(const char *text, const char *end)
{
    bl_cursor c = {text, end};
    int64_t rank;
    if (bl_line_take_level(&c) != '\0') {
        (void)bl_take_char(&c, ':');
        (void)bl_take_blanks(&c);
    }
    (void)bl_take_char(&c, '(');
    (void)(bl_take_word(&c, "global_") || bl_take_word(&c, "global ") || bl_take_char(&c, 'g'));
    if (!bl_take_word(&c, "rank") && !bl_take_word(&c, "Rank"))
        return -1;
    bool has_mark = bl_take_char(&c, '=') || bl_take_char(&c, ':');
    bool has_blank = bl_take_char(&c, ' ');
    if ((!has_mark && !has_blank) || !bl_take_digits(&c, 1, most_rank_digits, &rank))
        return -1;
    return bl_is_one_of(bl_peek(&c), has_mark ? " ,:|)" : ":|)") ? (int)rank : -1;
}

int bl_line_said_rank(const char *text, int64_t n_text)
{
    const char *end = text + (n_text < longest_group ? n_text : longest_group);
    const char *open = NULL;
    for (const char *at = text; at < end; at++) {
        if (*at == '[')
            open = at + 1;
        else if (*at == ']' && open != NULL) {
            int rank = rank_before(open, at);
            if (rank >= 0)
                return rank;
            open = NULL;
        }
    }
    return rank_in_front(text, end);
}

/* ---- origins ------------------------------------------------------------------------------------------------- */

static bool is_host_byte(char c) { return bl_is_alnum(c) || c == '-' || c == '.' || c == '_'; }

static bool take_host(bl_cursor *c)
{
    const char *from = c->at;
    while (c->at < c->end && c->at - from < 255 && is_host_byte(*c->at))
        c->at++;
    return c->at > from;
}

/* "gpu-n09:30210:30300 [2] NCCL INFO", whose number in brackets is a CUDA device. */
static bool take_nccl(bl_front *front, bl_cursor *c)
{
    bl_cursor d = *c;
    int64_t pid, thread, device;
    if (!take_host(&d) || !bl_take_char(&d, ':') || !bl_take_digits(&d, 1, 10, &pid) || !bl_take_char(&d, ':') ||
        !bl_take_digits(&d, 1, 18, &thread) || !bl_take_word(&d, " [") || !bl_take_digits(&d, 1, 4, &device) ||
        !bl_take_char(&d, ']'))
        return false;
    (void)bl_take_char(&d, ' ');
    front->line->pid = pid;
    front->line->device = (int)device;
    *c = d;
    return true;
}

/* "kernel:" or "program[1234]:" or, behind a syslog stamp, "program:"; with a blank behind. */
static bool take_program(bl_front *front, bl_cursor *c)
{
    bl_cursor d = *c;
    int64_t pid = -1;
    const char *from = d.at;
    while (d.at < d.end && d.at - from < 64 && (is_host_byte(*d.at) || bl_is_one_of(*d.at, "/@()")))
        d.at++;
    int64_t n_name = d.at - from;
    bool is_kernel = n_name == 6 && memcmp(from, "kernel", 6) == 0;
    bool has_pid = bl_take_char(&d, '[') && bl_take_digits(&d, 1, 10, &pid) && bl_take_char(&d, ']');
    if (n_name == 0 || !bl_take_char(&d, ':') || (!is_kernel && !has_pid && !front->has_syslog_stamp))
        return false;
    if (d.at < d.end && !bl_take_char(&d, ' '))
        return false;
    if (has_pid)
        front->line->pid = pid;
    *c = d;
    return true;
}

/* "host program[pid]: " behind a stamp; the kernel also names itself alone. */
static bool take_syslog(bl_front *front, bl_cursor *c)
{
    bl_cursor d = *c, host = *c;
    if (!front->has_stamp)
        return false;
    bool has_host = bl_line_take_level(&host) == '\0' && take_host(&host) && bl_take_blanks(&host) > 0;
    if (has_host && take_program(front, &host)) {
        *c = host;
        return true;
    }
    if (!bl_take_word(&d, "kernel: "))
        return false;
    *c = d;
    return true;
}

/* "kern  :info  : " of dmesg --decode. */
static bool take_facility(bl_cursor *c)
{
    static const char *const facilities[] = {"kern", "user", "daemon", "syslog", "auth", "mail"};
    static const char *const levels[] = {"emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"};
    bl_cursor d = *c;
    if (!take_any_word(&d, facilities, 6))
        return false;
    (void)bl_take_blanks(&d);
    if (!bl_take_char(&d, ':') || !take_any_word(&d, levels, 8))
        return false;
    (void)bl_take_blanks(&d);
    if (!bl_take_char(&d, ':'))
        return false;
    (void)bl_take_blanks(&d);
    *c = d;
    return true;
}

/* "<6>" of a raw kernel log, "<34>1 " of syslog. */
static bool take_priority(bl_cursor *c)
{
    bl_cursor d = *c;
    int64_t priority;
    if (!bl_take_char(&d, '<') || !bl_take_digits(&d, 1, 3, &priority) || priority > 191 || !bl_take_char(&d, '>'))
        return false;
    (void)bl_take_word(&d, "1 ");
    *c = d;
    return true;
}

/* "[ T1234] " or "[    C0] ": the thread or processor that printed a kernel line. */
static bool take_printer(bl_cursor *c)
{
    bl_cursor d = *c;
    int64_t number;
    if (!bl_take_char(&d, '['))
        return false;
    (void)bl_take_blanks(&d);
    if ((!bl_take_char(&d, 'T') && !bl_take_char(&d, 'C')) || !bl_take_digits(&d, 1, 10, &number) ||
        !bl_take_char(&d, ']'))
        return false;
    (void)bl_take_char(&d, ' ');
    *c = d;
    return true;
}

/* "[pod/trainer-worker-3/pytorch] " of kubectl, "stderr F " of a container's log, "trainer-3  | " of compose. */
static bool take_container(bl_front *front, bl_cursor *c)
{
    bl_cursor d = *c;
    if (bl_take_word(&d, "[pod/")) {
        while (d.at < d.end && (is_host_byte(*d.at) || *d.at == '/'))
            d.at++;
        if (!bl_take_char(&d, ']'))
            return false;
    } else if (front->has_stamp && (bl_take_word(&d, "stdout ") || bl_take_word(&d, "stderr "))) {
        if (!bl_take_char(&d, 'F') && !bl_take_char(&d, 'P'))
            return false;
    } else {
        bl_cursor number = d;
        if (!take_host(&d) || !bl_is_digit(d.at[-1]))
            return false;
        const char *digits = d.at;
        while (digits > number.at && bl_is_digit(digits[-1]))
            digits--;
        bool has_number = digits - number.at >= 2 && (digits[-1] == '-' || digits[-1] == '_');
        if (!has_number || bl_take_blanks(&d) == 0 || !bl_take_char(&d, '|'))
            return false;
    }
    if (d.at < d.end && !bl_take_char(&d, ' '))
        return false;
    *c = d;
    return true;
}

bool bl_line_take_origin(bl_front *front, bl_cursor *c)
{
    return take_nccl(front, c) || take_syslog(front, c) || take_facility(c) || take_priority(c) ||
           (front->line->time_kind == BL_TIME_BOOT && take_printer(c)) || take_container(front, c);
}
