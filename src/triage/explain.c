/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/utsname.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "triage/explain.h"
#include "triage/file_ranks.h"
#include "triage/kills.h"
#include "triage/quotes.h"
#include "triage/read_log.h"
#include "triage/sources.h"
#include "triage/variables.h"

struct bl_explain {
    bl_log_reader reader;
    bl_sources sources;
    bl_case c;
    bl_findings findings;
    bl_collectives collectives;
    bl_rank_failures failures;
    bl_questions questions;
    bool has_questions;
    bl_history *history;
    struct utsname machine; /* whose history it is */
    bl_text notes;          /* one a line */
};

/* Paths in an error are as they are; a note is one line. */
static void add_note(bl_explain *e, const char *head, const bl_error *error)
{
    bl_text_add(&e->notes, head);
    bl_text_add_escaped(&e->notes, error->what, (int64_t)strlen(error->what), INT64_MAX);
    bl_text_add(&e->notes, "\n");
}

static belay_code read_one(bl_explain *e, int file, int *n_read, bl_error *first)
{
    bl_error error = {0};
    belay_code code = bl_log_read(&e->reader, &e->sources.list[file], file, &error);
    if (code == BELAY_OK) {
        (*n_read)++;
        return BELAY_OK;
    }
    if (first->code == BELAY_OK)
        *first = error;
    add_note(e, "not read: ", &error);
    return code == BELAY_MEM_EXHAUSTED ? code : BELAY_OK;
}

static belay_code read_all(bl_explain *e, bl_error *error)
{
    bl_error first = {0};
    int n_read = 0;
    for (int file = 0; file < e->sources.n; file++)
        if (read_one(e, file, &n_read, &first) != BELAY_OK)
            break;
    if (first.code != BELAY_OK && (n_read == 0 || first.code == BELAY_MEM_EXHAUSTED)) {
        *error = first;
        return first.code;
    }
    bl_text_add(&e->notes, bl_text_get(&e->reader.notes));
    if (bl_gpu_n_lost(e->reader.gpus) > 0)
        bl_text_format(&e->notes, "%lld lines of kernel logs are of more GPUs or switches than are told apart\n",
                       (long long)bl_gpu_n_lost(e->reader.gpus));
    for (int i = 0; i < e->reader.n_pids; i++)
        bl_events_name_pid(e->reader.events, e->reader.pids[i].pid, e->reader.pids[i].rank);
    bl_file_ranks_settle(e->sources.list, e->sources.n, e->reader.events);
    if (e->reader.lacks_memory || bl_events_lack_memory(e->reader.events))
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to keep what was found in the logs");
    return BELAY_OK;
}

/* What the report shows beside the verdicts where there are several ranks. */
static bool compare_ranks(bl_explain *e)
{
    e->has_questions = bl_questions_matter(&e->c);
    if (e->has_questions)
        bl_questions_answer(&e->c, &e->questions);
    bool has_failures = bl_rank_failures_init(&e->c, &e->failures);
    return bl_collectives_init(&e->c, &e->collectives) && has_failures;
}

static belay_code conclude(bl_explain *e, bl_error *error)
{
    bl_quotes_take_back(e->reader.events);
    bl_kills_take_back(e->reader.events);
    bl_events_seal(e->reader.events);
    e->c = (bl_case){.events = e->reader.events,
                     .sources = e->sources.list,
                     .n_sources = e->sources.n,
                     .gpus = e->reader.gpus,
                     .history = e->history,
                     .host = e->machine.nodename};
    bl_derive_tools(&e->c);
    bl_derive_numbers(&e->c);
    bl_derive_sessions(&e->c);
    bl_derive_machine(&e->c);
    bl_derive_run(&e->c);
    bl_derive_peers(&e->c);
    bl_derive_ranks(&e->c);
    bl_derive_rest(&e->c);
    bool has_journals = bl_journals_derive(e->reader.journals, &e->c);
    if (!has_journals || !compare_ranks(e) || bl_events_lack_memory(e->reader.events))
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to judge what was found in the logs");
    bl_variables_note(&e->c, &e->notes);
    return bl_findings_reach(&e->c, &e->findings, error);
}

static belay_code open_history(bl_explain *e, const bl_explain_options *options, bl_error *error)
{
    if (uname(&e->machine) != 0)
        e->machine.nodename[0] = '\0'; /* without a name, a GPU is told by its UUID alone */
    return options->keeps_history
               ? bl_history_open(&(bl_history_options){.folder = options->history}, &e->history, error)
               : BELAY_OK;
}

/* A history that cannot be written costs no verdict. */
static void save_history(bl_explain *e)
{
    bl_error error = {0};
    if (e->history == NULL)
        return;
    if (bl_gpu_remember(e->reader.gpus, e->history, e->machine.nodename, 0, bl_clock_wall(), &error) != BELAY_OK ||
        bl_history_save(e->history, &error) != BELAY_OK)
        add_note(e, "history not kept: ", &error);
    if (bl_history_note(e->history)[0] != '\0')
        bl_text_format(&e->notes, "%s\n", bl_history_note(e->history));
}

static belay_code run(bl_explain *e, const bl_explain_options *options, bl_error *error)
{
    TRY(bl_sources_find(options->paths, options->n_paths, &e->sources, &e->notes, error));
    TRY(bl_log_reader_init(&e->reader, options->tools, error));
    TRY(open_history(e, options, error));
    TRY(read_all(e, error));
    TRY(conclude(e, error));
    save_history(e);
    return BELAY_OK;
}

belay_code bl_explain_run(const bl_explain_options *options, bl_explain **out, bl_error *error)
{
    bl_explain *e = bl_alloc(1, sizeof *e);
    if (e == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to read logs");
    belay_code code = run(e, options, error);
    if (code != BELAY_OK) {
        bl_explain_free(e);
        return code;
    }
    *out = e;
    return BELAY_OK;
}

void bl_explain_free(bl_explain *e)
{
    if (e == NULL)
        return;
    bl_log_reader_fini(&e->reader);
    bl_sources_fini(&e->sources);
    bl_history_close(e->history);
    bl_collectives_fini(&e->collectives);
    bl_rank_failures_fini(&e->failures);
    bl_text_fini(&e->notes);
    bl_free(e);
}

const bl_findings *bl_explain_findings(const bl_explain *e) { return &e->findings; }

const bl_case *bl_explain_case(const bl_explain *e) { return &e->c; }

const bl_collectives *bl_explain_collectives(const bl_explain *e) { return &e->collectives; }

const bl_rank_failures *bl_explain_failures(const bl_explain *e) { return &e->failures; }

const bl_questions *bl_explain_questions(const bl_explain *e) { return e->has_questions ? &e->questions : NULL; }

const char *bl_explain_journals(const bl_explain *e) { return bl_journals_lines(e->reader.journals); }

const char *bl_explain_notes(const bl_explain *e) { return bl_text_get(&e->notes); }
