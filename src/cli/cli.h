/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands share.  A command is a file with a function, its options are rows, and one table lists them all:
 * parser, help and the pages of docs/ read that table.  Commands call the library and print; nothing else. */
#ifndef BL_CLI_CLI_H
#define BL_CLI_CLI_H

#include <belay/context.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/text.h"
#include "file/json.h"
#include "file/path.h"
#include "train/settings.h"

typedef struct bl_cli bl_cli;

typedef struct bl_command {
    const char *name;
    const char *arguments; /* "RUN [TEXT...]" as in the first line of help; "" */
    const char *says;      /* one line for the list of commands */
    const char *more;      /* a paragraph for its own help, lines of at most 100 letters; "" */
    const char *example;   /* command lines, one a line */
    const bl_setting_row *rows;
    int n_rows;
    int64_t options_bytes; /* of the struct that the rows describe */
    int min_arguments, max_arguments;
    bool options_first; /* the first word that is no option ends them: what follows is another program's */
    /* Keeps one option; NULL: bl_setting_store. */
    belay_code (*store)(void *options, const bl_setting_row *row, const char *value, const char *option,
                        bl_error *error);
    int (*run)(bl_cli *cli); /* gives the exit status */
} bl_command;

extern const bl_command *const bl_cli_commands[]; /* NULL-ended, in the order of help */
const bl_command *bl_cli_command(const char *name);

/* One call of the program. */
struct bl_cli {
    const bl_command *command; /* NULL while none is known */
    void *options;             /* of the command, zeroed, then defaults, then what was given */
    char **words;              /* all that came behind the command's name */
    int n_words;
    char **arguments; /* what stood between the options */
    int n_arguments;
    bool json, help;
    bool json_given; /* met as an option, where json may still be another program's */

    json_t *document; /* with --json: what is printed at the end, an object */
    bool lacks_memory;
    int n_told;         /* faults and warnings told */
    belay_code told;    /* the first fault among them */
    int status_of_told; /* its exit status */
    int output_errno;   /* of the first write to stdout that failed, 0: none */
    bool resumed;       /* a run was to go on: where it does so is told */
    int bar_width;      /* columns of the progress bar that now stand on stderr */
    int64_t bar_drawn;  /* when, by bl_clock_now */
    double before;      /* batches that were done when this process began */
};

/* The whole program. */
int bl_cli_main(int argc, char **argv);

/* ---- parse.c ---------------------------------------------------------------------------------------------------- */

/* Takes the words after the command's name apart: options into cli->options, the rest into cli->arguments. */
BL_MUST_USE belay_code bl_cli_parse(bl_cli *cli, int n, char **words, bl_error *error);
void bl_cli_options_fini(bl_cli *cli);

/* ---- help.c ----------------------------------------------------------------------------------------------------- */

/* Exit statuses in words, as they stand in help and manual; ended by NULLs. */
typedef struct bl_exit {
    const char *status, *says;
} bl_exit;
extern const bl_exit bl_cli_exits[];

void bl_cli_help(FILE *out);
void bl_cli_help_command(const bl_command *command, FILE *out);
void bl_cli_help_version(FILE *out);

/* ---- say.c ------------------------------------------------------------------------------------------------------ */

/* Tells an error on stderr, with --json in the document too; and as the last thing: ends, gives its exit status. */
void bl_cli_tell(bl_cli *cli, const bl_error *error);
int bl_cli_fail(bl_cli *cli, const bl_error *error);
/* A belay_log_function whose state is the bl_cli: the paragraph goes to stderr, with --json into the document too. */
void bl_cli_log(void *state, belay_code code, const char *text);

/* A field of the document, whose value is handed over; NULL and lack of memory are remembered.  NaN is null. */
void bl_cli_put(bl_cli *cli, json_t *object, const char *key, json_t *value);
void bl_cli_put_int(bl_cli *cli, json_t *object, const char *key, int64_t value);
void bl_cli_put_real(bl_cli *cli, json_t *object, const char *key, double value);
void bl_cli_put_text(bl_cli *cli, json_t *object, const char *key, const char *value); /* NULL: null */

/* Hands on what was printed on stdout; false when that, or a print before, failed.  bl_cli_end tells it. */
bool bl_cli_flush(bl_cli *cli);

/* Prints the document, flushes stdout; the exit status, which is another than `status` when that failed. */
int bl_cli_end(bl_cli *cli, int status);

/* Text that may come from a file, on stdout with control characters escaped, padded with blanks to `width` columns
 * (negative: blanks in front).  Lack of memory is remembered. */
void bl_cli_print(bl_cli *cli, const char *text, int width);
/* Columns that the escaped text takes. */
int bl_cli_columns(bl_cli *cli, const char *text);
/* A share or a loss; "-" for NaN. */
void bl_cli_print_real(double value, int width);

bool bl_cli_has_colour(FILE *stream);

/* ---- progress.c ------------------------------------------------------------------------------------------------- */

/* A belay_progress_function whose state is the bl_cli; `resumed` in it says that a run was asked to go on. */
struct belay_progress;
void bl_cli_progress(void *state, const struct belay_progress *progress);
/* Takes the bar off the terminal, before anything else is written there. */
void bl_cli_bar_clear(bl_cli *cli);

/* ---- options that several commands have --------------------------------------------------------------------------- */

/* "cpu", and as many threads as the process may use. */
typedef struct bl_cli_place {
    char *device;
    int64_t threads;
} bl_cli_place;

/* Opens a context that tells its faults to the user. */
belay_context *bl_cli_open(bl_cli *cli, const bl_cli_place *place);

#define BL_CLI_ROW_DEVICE(struct_, field_)                                                                             \
    {                                                                                                                  \
        .name = "device", .kind = BL_KIND_TEXT, .offset = offsetof(struct_, field_.device), .group = BL_GROUP_RUN,     \
        .text_default = "cpu", .words = "", .place = "NAME", .unit = "",                                               \
        .help = "Where to compute: cpu, sim:N or cuda:N."                                                              \
    }
#define BL_CLI_ROW_THREADS(struct_, field_)                                                                            \
    {                                                                                                                  \
        .name = "threads", .kind = BL_KIND_INT, .offset = offsetof(struct_, field_.threads), .group = BL_GROUP_RUN,    \
        .int_low = 1, .int_high = 1024, .words = "the cores allowed", .place = "N", .unit = "threads",                 \
        .help = "Threads that compute."                                                                                \
    }

#endif
