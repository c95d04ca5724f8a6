/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* memmem */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "triage/quotes.h"
#include "triage/read_log.h"

enum { FENCE_LINES = 200 };

/* One file while it is read. */
typedef struct reading {
    bl_log_reader *reader;
    int file;
    char scratch[bl_scan_line_max];
    bl_kernel_reader kernel;
    int64_t time; /* of the last stamp */
    int segment;
    bool is_document; /* the command of this segment prints a file that is no log */
    bl_quotes quotes;
    int64_t fence; /* line of an open ``` of Markdown, 0: none */
} reading;

belay_code bl_log_tools_init(bl_log_tools *tools, bl_error *error)
{
    *tools = (bl_log_tools){0};
    TRY(bl_matcher_new(&tools->matcher, error));
    const bl_anchors *anchors = bl_matcher_anchors(tools->matcher);
    return bl_scan_new(anchors->list, anchors->n, &tools->scan, error);
}

void bl_log_tools_fini(bl_log_tools *tools)
{
    bl_matcher_free(tools->matcher);
    bl_scan_free(tools->scan);
    *tools = (bl_log_tools){0};
}

belay_code bl_log_reader_init(bl_log_reader *reader, const bl_log_tools *tools, bl_error *error)
{
    *reader = (bl_log_reader){.tools = tools != NULL ? tools : &reader->own};
    if (tools == NULL)
        TRY(bl_log_tools_init(&reader->own, error));
    reader->events = bl_events_new();
    reader->gpus = bl_gpu_fold_new();
    reader->journals = bl_journals_new();
    if (reader->events == NULL || reader->gpus == NULL || reader->journals == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to read logs");
    return BELAY_OK;
}

void bl_log_reader_fini(bl_log_reader *reader)
{
    bl_log_tools_fini(&reader->own);
    bl_events_free(reader->events);
    bl_gpu_fold_free(reader->gpus);
    bl_journals_free(reader->journals);
    bl_text_fini(&reader->notes);
}

/* ---- sessions ----------------------------------------------------------------------------------------------------- */

static bool begins_with(const char *text, int64_t n, const char *word)
{
    int64_t length = (int64_t)strlen(word);
    return n >= length && memcmp(text, word, (size_t)length) == 0;
}

/* Bytes of "NAME=value NAME=value " at the beginning of a command, 0 for none. */
static int64_t assignments(const char *text, int64_t n)
{
    int64_t end = 0;
    for (int64_t at = 0; at < n;) {
        int64_t name = at;
        while (at < n && (isupper((unsigned char)text[at]) || isdigit((unsigned char)text[at]) || text[at] == '_'))
            at++;
        if (at - name < 2 || at >= n || text[at] != '=')
            break;
        while (at < n && text[at] != ' ')
            at++;
        while (at < n && text[at] == ' ')
            at++;
        end = at;
    }
    return end < n ? end : 0; /* a command must follow */
}

/* Where the command of a prompt line begins ("$ cmd", "user@host:~$ cmd", "NAME=value cmd"), -1 when it is none. */
static int64_t command_of(const char *text, int64_t n)
{
    int64_t at = 0;
    while (at < n && (isalnum((unsigned char)text[at]) || strchr("@:~/._-()", text[at]) != NULL))
        at++;
    if (at + 2 < n && (text[at] == '$') && text[at + 1] == ' ' && text[at + 2] != ' ')
        return at + 2;
    return assignments(text, n) > 0 ? 0 : -1;
}

static bool ends_in(const char *text, int64_t n, const char *ending)
{
    int64_t length = (int64_t)strlen(ending);
    return n >= length && memcmp(text + n - length, ending, (size_t)length) == 0;
}

/* "cat README.md": what follows is a text that somebody wrote, not what a program said. */
static bool prints_document(const char *command, int64_t n)
{
    static const char *const printers[] = {"cat ",   "less ",    "more ",    "head ", "tail ", "bat ",
                                           "sed -n", "git diff", "git show", "man ",  "grep "};
    static const char *const endings[] = {".md",  ".rst", ".txt", ".py",   ".html", ".sh",   ".c",   ".cc",
                                          ".cpp", ".cu",  ".h",   ".yaml", ".yml",  ".json", ".toml"};
    bool prints = false;
    for (size_t i = 0; i < sizeof printers / sizeof printers[0]; i++)
        prints = prints || begins_with(command, n, printers[i]);
    if (!prints || begins_with(command, n, "git") || begins_with(command, n, "man "))
        return prints;
    while (n > 0 && isspace((unsigned char)command[n - 1]))
        n--;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ends_in(command, n, endings[i]))
            return true;
    return false;
}

static void follow_session(reading *r, const bl_line *line)
{
    int64_t command = command_of(line->text, line->n_text);
    if (command >= 0) {
        r->segment++;
        r->fence = 0;
        r->is_document = prints_document(line->text + command, line->n_text - command);
    } else if (begins_with(line->text, line->n_text, "```")) {
        r->fence = r->fence == 0 ? line->number : 0;
    }
    if (r->fence != 0 && line->number - r->fence > FENCE_LINES)
        r->fence = 0;
}

/* ---- lines --------------------------------------------------------------------------------------------------------- */

/* The number behind "rank " or "pid=" and the like at `at`, up to 9 digits; -1.  *end is then behind it. */
static int64_t number_behind(const char *at, const char *stop, const char **end)
{
    int64_t value = 0;
    int n_digits = 0;
    while (at < stop && (*at == '=' || *at == ':' || *at == ' '))
        at++;
    for (; at < stop && isdigit((unsigned char)*at) && n_digits < 10; at++, n_digits++)
        value = 10 * value + (*at - '0');
    *end = at;
    return n_digits == 0 || n_digits == 10 ? -1 : value;
}

/* Where the word stands alone (not "local_rank"), NULL. */
static const char *find_word(const char *text, const char *stop, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; (at = memmem(at, (size_t)(stop - at), word, n)) != NULL; at += n) {
        bool begins = at == text || (!isalnum((unsigned char)at[-1]) && at[-1] != '_');
        if (begins && at + n < stop && strchr("=: ", at[n]) != NULL)
            return at;
    }
    return NULL;
}

/* A process that says which rank it is: "rank=3", "rank: 3", "rank 3/8", "rank 3 of 8", "rank 3 nranks 4". */
static int64_t own_rank(const char *text, const char *stop)
{
    static const char *const counts[] = {"/", " of ", " nranks ", " nRanks "};
    const char *at = find_word(text, stop, "rank"), *end = NULL;
    int64_t rank = at == NULL ? -1 : number_behind(at + 4, stop, &end);
    bool is_said = rank >= 0 && at[4] != ' ';
    for (int i = 0; i < BL_COUNT(counts) && rank >= 0; i++)
        is_said = is_said || begins_with(end, stop - end, counts[i]);
    return is_said && rank < 1000000 ? rank : -1;
}

/* Two ranks of one process: then it speaks of others, and its lines stay without. */
static void note_pid(bl_log_reader *reader, int64_t pid, int64_t rank)
{
    for (int i = 0; i < reader->n_pids; i++)
        if (reader->pids[i].pid == pid) {
            if (reader->pids[i].rank != rank)
                reader->pids[i].rank = -1;
            return;
        }
    if (reader->n_pids == BL_READ_PIDS)
        return;
    reader->pids[reader->n_pids].pid = pid;
    reader->pids[reader->n_pids++].rank = (int)rank;
}

static void learn_pid(bl_log_reader *reader, const bl_line *line)
{
    if (line->pid < 0)
        return;
    int64_t rank = own_rank(line->text, line->text + line->n_text);
    if (rank >= 0)
        note_pid(reader, line->pid, rank);
}

static void feed_kernel(reading *r, const bl_line *line)
{
    bl_kernel_event event;
    bl_gpu_place place = {.file = r->file, .line = line->number, .time = line->time, .time_kind = line->time_kind};
    if (bl_kernel_feed_line(&r->kernel, line, &event) && !bl_gpu_fold_add(r->reader->gpus, &event, place))
        r->reader->lacks_memory = r->reader->lacks_memory || bl_gpu_lacks_memory(r->reader->gpus);
}

static belay_code take_line(void *state, const bl_line_style *style, const bl_scan_line *found, bl_error *error)
{
    (void)error;
    reading *r = state;
    bl_line line = {.file = r->file, .number = found->number};
    bl_line_parse(style, found->raw, found->n_raw, r->scratch, &line);
    if (line.rank < 0)
        line.rank = line.said_rank;
    if (line.time_kind == BL_TIME_WALL)
        r->time = line.time;
    bool is_whole_read = found->is_head || found->is_tail || found->offset < BL_READ_WHOLE;
    if (is_whole_read)
        follow_session(r, &line);
    learn_pid(r->reader, &line);
    bool is_open = r->quotes.sample > 0 || r->quotes.tests > 0;
    if (!is_open || line.time_kind != BL_TIME_NONE) /* a line of the kernel itself has its stamp */
        feed_kernel(r, &line);
    bl_place place = {.time = r->time,
                      .segment = r->segment,
                      .is_quoted = r->is_document || r->fence != 0,
                      .is_whole_read = is_whole_read};
    bl_matcher_line(r->reader->tools->matcher, &line, found->anchors, found->n_anchors, &place, r->reader->events);
    int64_t from;
    if (bl_quotes_follow(&r->quotes, &line, &from))
        bl_events_take_back(r->reader->events, r->file, from, line.number);
    return BELAY_OK;
}

static void fill_source(bl_source *source, const bl_scan_total *total)
{
    source->n_lines = total->n_lines;
    source->n_bytes = total->n_bytes;
    source->was_whole_read = total->n_bytes <= BL_READ_WHOLE;
    source->rank = total->style.rank;
    source->told_rank = bl_line_style_told(&total->style);
    source->first_time = total->first_time_kind == BL_TIME_WALL ? total->first_time : BL_NO_TIME;
    source->last_time = total->last_time_kind == BL_TIME_WALL ? total->last_time : BL_NO_TIME;
}

static belay_code read_lines(bl_log_reader *reader, bl_input *input, bl_source *source, int file, bl_error *error)
{
    bl_scan_total total = {0};
    reading *r = bl_alloc(1, sizeof *r);
    if (r == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to read %s", source->path);
    *r = (reading){.reader = reader, .file = file, .time = BL_NO_TIME};
    bl_scan_sink sink = {.state = r, .line = take_line, .whole = BL_READ_WHOLE};
    belay_code code = bl_scan_run(reader->tools->scan, input, &sink, &total, error);
    fill_source(source, &total);
    bl_free(r);
    return code;
}

/* The rank of a journal is told by its path alone. */
static belay_code read_journal(bl_log_reader *reader, bl_input *input, bl_source *source, int file, bl_error *error)
{
    source->rank = bl_line_rank_of_path(source->path);
    source->told_rank = -1;
    source->was_whole_read = true;
    belay_code code = bl_journals_read(reader->journals, input, file, error);
    source->n_bytes = bl_input_n_taken(input);
    return code;
}

belay_code bl_log_read(bl_log_reader *reader, bl_source *source, int file, bl_error *error)
{
    bl_input *input = NULL;
    TRY(bl_input_open(source->path, &input, error));
    belay_code code = bl_journals_claim(input) ? read_journal(reader, input, source, file, error)
                                               : read_lines(reader, input, source, file, error);
    if (bl_input_damage(input) != NULL) {
        bl_text_add_escaped(&reader->notes, source->path, (int64_t)strlen(source->path), INT64_MAX);
        bl_text_format(&reader->notes, " %s\n", bl_input_damage(input));
    }
    bl_input_close(input);
    return code;
}
