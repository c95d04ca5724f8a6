/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that a command writes.  Errors and warnings go to stderr; results to stdout, or into the document. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>

#include "cli/commands.h"

/* ---- the terminal ------------------------------------------------------------------------------------------------ */

bool bl_cli_has_colour(FILE *stream)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    if ((none != NULL && none[0] != '\0') || term == NULL || term[0] == '\0' || strcmp(term, "dumb") == 0)
        return false;
    return isatty(fileno(stream)) == 1;
}

static bool starts_with(const char *line, const char *words) { return strncmp(line, words, strlen(words)) == 0; }

/* One line with control characters escaped; "belay:" coloured where that is wanted. */
static void print_line(const char *line, size_t length, bool is_warning)
{
    static const char head[] = "belay:";
    bl_text escaped = {0};
    bool coloured = bl_cli_has_colour(stderr) && starts_with(line, head);
    bl_text_add_escaped(&escaped, line, (int64_t)length, INT64_MAX);
    if (coloured)
        fprintf(stderr, "\x1b[1;%dm%s\x1b[0m%s\n", is_warning ? 33 : 31, head, bl_text_get(&escaped) + strlen(head));
    else
        fprintf(stderr, "%s\n", bl_text_get(&escaped));
    bl_text_fini(&escaped);
}

/* The paragraph without what says nothing to a user of the command: that it was before the first step. */
static void leave_out_noise(const bl_cli *cli, const char *text, bl_text *out)
{
    bool is_of_batch = strstr(text, "\n    op: ") != NULL || strstr(text, "\n    sample: ") != NULL;
    bool keeps = is_of_batch && cli->command == &bl_cli_train;
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        length += text[length] == '\n';
        if (keeps || !starts_with(text, "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0,"))
            bl_text_add_bytes(out, text, (int64_t)length);
        text += length;
    }
}

static void print_paragraph(bl_cli *cli, belay_code code, const char *text)
{
    bl_cli_bar_clear(cli);
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        print_line(text, length, belay_code_severity(code) == BELAY_SEVERITY_WARNING);
        text += length + (text[length] == '\n');
    }
}

/* ---- errors ------------------------------------------------------------------------------------------------------- */

/* Keeps what was told for the document: a bounded list, and the first fault for the exit status. */
static void keep(bl_cli *cli, belay_code code, const char *text)
{
    enum { MOST = 1000 };
    cli->n_told++;
    if (cli->told == BELAY_OK && belay_code_severity(code) != BELAY_SEVERITY_WARNING) {
        cli->told = code;
        cli->status_of_told = belay_code_status(code);
    }
    if (cli->document == NULL || cli->n_told > MOST)
        return;
    json_t *list = json_object_get(cli->document, "faults"), *entry = json_object();
    if (list == NULL)
        bl_cli_put(cli, cli->document, "faults", list = json_array());
    bl_cli_put_text(cli, entry, "code", belay_code_name(code));
    bl_cli_put_text(cli, entry, "text", text);
    if (json_array_append_new(list, entry) != 0)
        cli->lacks_memory = true;
}

void bl_cli_log(void *state, belay_code code, const char *text)
{
    bl_cli *cli = state;
    bl_text words = {0};
    leave_out_noise(cli, text, &words);
    if (!words.failed)
        text = bl_text_get(&words);
    print_paragraph(cli, code, text);
    keep(cli, code, text);
    bl_text_fini(&words);
}

static void describe(const bl_error *error, bl_text *out)
{
    bl_text_format(out, "belay: %s (%s)\n", error->what, belay_code_name(error->code));
    for (const char *fact = error->facts; *fact != '\0';) {
        size_t length = strcspn(fact, "\n");
        bl_text_format(out, "    %.*s\n", (int)length, fact);
        fact += length + (fact[length] == '\n');
    }
    bl_text_format(out, "    try: %s\n", bl_error_advice(error));
}

void bl_cli_tell(bl_cli *cli, const bl_error *error)
{
    bl_text words = {0};
    describe(error, &words);
    if (words.failed) { /* no memory to build it in: as much as needs none */
        bl_cli_bar_clear(cli);
        fprintf(stderr, "belay: %s (%s)\n", error->what, belay_code_name(error->code));
        keep(cli, error->code, error->what);
    } else {
        bl_cli_log(cli, error->code, bl_text_get(&words));
    }
    bl_text_fini(&words);
}

int bl_cli_fail(bl_cli *cli, const bl_error *error)
{
    bl_cli_tell(cli, error);
    return bl_cli_end(cli, belay_code_status(error->code));
}

/* ---- the document -------------------------------------------------------------------------------------------------- */

void bl_cli_put(bl_cli *cli, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        cli->lacks_memory = true;
}

void bl_cli_put_int(bl_cli *cli, json_t *object, const char *key, int64_t value)
{
    bl_cli_put(cli, object, key, json_integer(value));
}

void bl_cli_put_real(bl_cli *cli, json_t *object, const char *key, double value)
{
    bl_cli_put(cli, object, key, isfinite(value) ? json_real(value) : json_null());
}

void bl_cli_put_text(bl_cli *cli, json_t *object, const char *key, const char *value)
{
    bl_cli_put(cli, object, key, bl_json_text(value));
}

/* A piece of the document.  DEL and the controls behind it (U+0080 to U+009F) may stand in JSON as they are, and would
 * still act on a terminal: they are written as \u00XX.  A piece never ends within a character. */
static int print_piece(const char *bytes, size_t n, void *user)
{
    (void)user;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)bytes[i], next = i + 1 < n ? (unsigned char)bytes[i + 1] : 0;
        bool is_control = byte == 0xC2 && next >= 0x80 && next < 0xA0;
        if (byte == 0x7F || is_control)
            fprintf(stdout, "\\u00%02x", is_control ? next : byte);
        else
            fputc(byte, stdout);
        i += is_control;
    }
    return 0;
}

static belay_code print_document(bl_cli *cli, bl_error *error)
{
    if (json_dump_callback(cli->document, print_piece, NULL, JSON_INDENT(2)) != 0)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to print the JSON document");
    fputc('\n', stdout);
    return BELAY_OK;
}

bool bl_cli_flush(bl_cli *cli)
{
    bool had_failed = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) == 0 && !had_failed)
        return cli->output_errno == 0;
    if (cli->output_errno == 0)
        cli->output_errno = errno != 0 ? errno : EIO;
    return false;
}

/* Results that could not be written are a failure of their own. */
static belay_code flush_output(bl_cli *cli, bl_error *error)
{
    char reason[128];
    if (bl_cli_flush(cli))
        return BELAY_OK;
    bl_error_set(error, BELAY_FILE_WRITE, "cannot write to standard output: %s",
                 bl_error_errno(cli->output_errno, reason));
    return BELAY_FILE_WRITE;
}

/* The document, unless parts of it had no memory. */
static belay_code finish(bl_cli *cli, int status, bl_error *error)
{
    if (cli->document != NULL)
        bl_cli_put_int(cli, cli->document, "status", status);
    if (cli->lacks_memory)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the whole output");
    if (cli->document != NULL)
        TRY(print_document(cli, error));
    return flush_output(cli, error);
}

int bl_cli_end(bl_cli *cli, int status)
{
    bl_error error = {0};
    bl_cli_bar_clear(cli);
    if (finish(cli, status, &error) == BELAY_OK)
        return status;
    fflush(stdout);
    fprintf(stderr, "belay: %s (%s)\n    try: %s\n", error.what, belay_code_name(error.code), bl_error_advice(&error));
    return status != 0 ? status : belay_code_status(error.code);
}

/* ---- results ------------------------------------------------------------------------------------------------------- */

static int columns_of(const char *bytes, int64_t n_bytes)
{
    int columns = 0;
    for (int64_t i = 0; i < n_bytes;) {
        utf8proc_int32_t letter;
        utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)bytes + i, n_bytes - i, &letter);
        columns += length > 0 ? utf8proc_charwidth(letter) : 1;
        i += length > 0 ? length : 1;
    }
    return columns;
}

int bl_cli_columns(bl_cli *cli, const char *text)
{
    bl_text escaped = {0};
    bl_text_add_escaped(&escaped, text, (int64_t)strlen(text), INT64_MAX);
    int columns = columns_of(bl_text_get(&escaped), escaped.n_bytes);
    cli->lacks_memory = cli->lacks_memory || escaped.failed;
    bl_text_fini(&escaped);
    return columns;
}

void bl_cli_print(bl_cli *cli, const char *text, int width)
{
    bl_text escaped = {0};
    bl_text_add_escaped(&escaped, text, (int64_t)strlen(text), INT64_MAX);
    int missing = abs(width) - columns_of(bl_text_get(&escaped), escaped.n_bytes);
    if (width < 0 && missing > 0)
        printf("%*s", missing, "");
    fputs(bl_text_get(&escaped), stdout);
    if (width > 0 && missing > 0)
        printf("%*s", missing, "");
    cli->lacks_memory = cli->lacks_memory || escaped.failed;
    bl_text_fini(&escaped);
}

void bl_cli_print_real(double value, int width)
{
    if (isnan(value))
        printf("%*s", width, "-");
    else
        printf("%*.4f", width, value);
}

belay_context *bl_cli_open(bl_cli *cli, const bl_cli_place *place)
{
    belay_context *context = belay_open(
        &(belay_options){.device = place->device, .threads = (int)place->threads, .log = bl_cli_log, .log_state = cli});
    belay_site_push(context, ""); /* lines of the commands say nothing to their users */
    return context;
}
