/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what derives from rows: `belay_generate FOLDER` makes FOLDER/docs/ops.md, docs/faults.md, docs/settings.md and
 * include/belay/op_rows.h.  A test compares them with what is committed; `make docs` writes them there. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/attributes.h"
#include "kernel/row.h"
#include "report/reason.h"
#include "tools/page.h"
#include "train/setting_rows.h"

static const char tool[] = "belay_generate";
static const char *const generated = "Generated from the rows by `make docs`; change the rows.";

static const char *parameters_of(bl_skeleton skeleton)
{
    switch (skeleton) {
    case BL_SKELETON_MAP1:
        return "belay_tensor x";
    case BL_SKELETON_MAP2:
    case BL_SKELETON_COMPARE:
        return "belay_tensor a, belay_tensor b";
    case BL_SKELETON_SELECT:
        return "belay_tensor condition, belay_tensor a, belay_tensor b";
    default:
        return NULL;
    }
}

static void write_header(FILE *out)
{
    fprintf(out, "/* SPDX-License-Identifier: Apache-2.0 */\n/* Element-wise ops without options.  %s */\n", generated);
    fputs("#ifndef BELAY_OP_ROWS_H\n#define BELAY_OP_ROWS_H\n\n#include <belay/types.h>\n\n"
          "#ifdef __cplusplus\nextern \"C\" {\n#endif\n",
          out);
    for (int op = 1; op < BL_N_OPS; op++) {
        const bl_row *row = &bl_kernel_rows[op];
        const char *parameters = parameters_of(row->skeleton);
        if (parameters != NULL && !row->internal)
            fprintf(out, "\n/* %s: %s */\nBELAY_API belay_tensor belay_%s(%s);\n", row->formula, row->says, row->name,
                    parameters);
    }
    fputs("\n#ifdef __cplusplus\n}\n#endif\n#endif\n", out);
}

static const char *dtypes_of(bl_dtypes dtypes)
{
    static const char *const names[] = {"floats", "numbers", "all"};
    return names[dtypes];
}

/* Table cells: a `|` inside would end the cell. */
static void write_cell(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '|')
            fputs("\\|", out);
        else
            fputc(*text, out);
    fputs(" | ", out);
}

static void write_op_table(FILE *out, bool gradients)
{
    fputs("| op | dtypes | formula | what it does | options | gradient |\n|---|---|---|---|---|---|\n", out);
    for (int op = 1; op < BL_N_OPS; op++) {
        const bl_row *row = &bl_kernel_rows[op];
        bool is_gradient = strstr(row->name, "_grad") != NULL || row->skeleton == BL_SKELETON_MASK;
        if (is_gradient != gradients)
            continue;
        fprintf(out, "| `%s` | %s | ", row->name, dtypes_of(row->dtypes));
        write_cell(out, row->formula != NULL ? row->formula : "");
        write_cell(out, row->says != NULL ? row->says : "");
        write_cell(out, row->options != NULL ? row->options : "");
        for (int g = 0; g < BL_MAX_GRADS; g++)
            if (row->grad[g] != BL_OP_none)
                fprintf(out, "`%s` ", bl_kernel_rows[row->grad[g]].name);
        fputs("|\n", out);
    }
}

static void write_ops(FILE *out)
{
    fprintf(out, "<!-- SPDX-License-Identifier: Apache-2.0 -->\n# Ops\n\n%s\n\n", generated);
    fputs("Kernels with their mathematics. The calls for users stand in `<belay/op.h>` and `<belay/op_rows.h>`; "
          "several of "
          "them are made of one kernel and some views.\n\n",
          out);
    write_op_table(out, false);
    fputs("\n## Gradients\n\n", out);
    write_op_table(out, true);
}

/* "ids", "labels" or both, and an example. */
static void write_reason(FILE *out, const bl_report_reason *row)
{
    const char *what = !row->is_for_labels ? "ids" : row->is_for_ids ? "ids, labels" : "labels";
    fprintf(out, "| `%s` | %s | %" PRId64 " against %" PRId64 ", %s | ", row->name, what, row->value, row->bound,
            belay_dtype_name(row->dtype));
    write_cell(out, row->likely);
    fprintf(out, "%s |\n", row->advice);
}

static void write_reasons(FILE *out)
{
    fputs("\n## Likely reasons\n\n"
          "What the value of a bad index or label says about its cause: the first of these that fits stands in the "
          "report "
          "as `likely:`, and what to try with it. The value is all that is known here: the reason is likely, not "
          "proved.\n\n"
          "| reason | of | for example | likely | what to try |\n|---|---|---|---|---|\n",
          out);
    const bl_report_reason *row;
    for (int i = 0; (row = bl_report_reason_row(i)) != NULL; i++)
        write_reason(out, row);
    fputs(
        "\n## As JSON\n\n"
        "A line of `faults.jsonl` and `belay_fault.json` are one object; what is empty has no key. `code`, `what`, "
        "`op`, "
        "`layer`, `site`, `device`, `sample`; of the bad element `tensor`, `at`, `got`, `limit`, `count`; `tensors`, "
        "each "
        "with `name`, `shape`, `dtype`, `role`, `device`, `output`; `epoch`, `batch`, `micro_batch`, `step`, `rank`; "
        "`number` of the code, `severity`, `backward`, `sample_row`, `operand`, `table`, `element`, `values`, "
        "`source`; "
        "`surfaced`, `launch`, `stream`, `other` with `other_site` and `other_stream`, `echoes`, `echo` (true: it is "
        "one); `facts`, `reason`, "
        "`likely`, `try`, and `text`, the paragraph. `faults.jsonl` adds `policy`, what was done about it, and of the "
        "batch `inputs`, `labels`, `n_samples`, `samples`.\n",
        out);
}

static void write_faults(FILE *out)
{
    static const char *const severities[] = {"warning", "fault", "fatal", "bug"};
    static const belay_code codes[] = {
#define BELAY_FAULT(enumerator, number, name, severity, status, why, advice) BELAY_##enumerator,
#include <belay/fault.def>
#undef BELAY_FAULT
    };
    fprintf(out, "<!-- SPDX-License-Identifier: Apache-2.0 -->\n# Faults\n\n%s\n\n", generated);
    fputs(
        "A *warning* leaves the run as it was; a *fault* refuses the step and the run goes on; after a *fatal* one it "
        "cannot; a *bug* is ours. The last column is the exit status of a run that it ends.\n\n"
        "| code | number | severity | why | what to do | status |\n|---|---|---|---|---|---|\n",
        out);
    for (int i = 0; i < BL_COUNT(codes); i++) {
        belay_code code = codes[i];
        fprintf(out, "| `%s` | %d | %s | ", belay_code_name(code), (int)code, severities[belay_code_severity(code)]);
        write_cell(out, belay_code_why(code));
        write_cell(out, belay_code_advice(code));
        fprintf(out, "%d |\n", belay_code_status(code));
    }
    write_reasons(out);
}

/* A cell made of words; empty where there are none. */
static void write_text_cell(FILE *out, bl_text *text)
{
    write_cell(out, bl_text_get(text));
    bl_text_clear(text);
}

static void write_setting(FILE *out, const bl_setting_row *row, bl_text *text)
{
    static const char *const resumes[] = {"as it was", "told", "free"};
    bl_text_format(text, "`--%s%s", row->name, row->kind == BL_KIND_FLAG ? "" : " ");
    bl_setting_place_describe(row, text);
    if (row->offset == bl_setting_rows[BL_SETTING_data].offset) {
        bl_text_clear(text);
        bl_text_add(text, "`DATA");
    }
    bl_text_add(text, "`");
    fputs("| ", out);
    write_text_cell(out, text);
    bl_setting_default_describe(row, text);
    write_text_cell(out, text);
    if (row->kind == BL_KIND_INT || row->kind == BL_KIND_REAL || row->kind == BL_KIND_PAIRS)
        bl_setting_limits_describe(row, text);
    write_text_cell(out, text);
    write_cell(out, row->unit);
    write_cell(out, row->group != BL_GROUP_CALL ? resumes[row->on_resume] : "");
    fprintf(out, "%s |\n", row->help);
}

static void write_settings(FILE *out)
{
    bl_text text = {0};
    fprintf(out, "<!-- SPDX-License-Identifier: Apache-2.0 -->\n# Settings of `belay train`\n\n%s\n\n", generated);
    fputs(
        "A setting comes from the command line, else from the file that `--config` names, else (with `--resume`) from "
        "the run, else it is the default. `RUN/run.json` holds each one with who set it; `--config` reads that file, "
        "or "
        "any object of names and values: `{\"lr\": 0.002, \"batch\": 32, \"skip-batch\": [\"0:12\"]}`.\n\n"
        "`--resume` goes on with the run in `--out` from its `last.safetensors`, bit for bit as if it had never "
        "stopped. A setting that is not given then is as the run has it. One that is given otherwise: *as it was* is "
        "refused by name, *told* is taken with the warning `run.changed`, *free* is taken, for no bit depends on it "
        "(a schedule other than constant depends on `--epochs`, whose change is told then). A folder that holds no "
        "run is refused, so that a mistyped `--out` begins nothing; one with a `run.json` and no checkpoint yet "
        "starts over, and says so; one with `best.safetensors` but without `last.safetensors` is refused.\n",
        out);
    for (int group = 0; group < BL_N_GROUPS; group++) {
        fprintf(out,
                "\n## %s\n\n| setting | default | limits | unit | `--resume` | what it does "
                "|\n|---|---|---|---|---|---|\n",
                bl_setting_group_name((bl_setting_group)group));
        for (int i = 0; i < BL_N_SETTINGS; i++)
            if ((int)bl_setting_rows[i].group == group)
                write_setting(out, &bl_setting_rows[i], &text);
    }
    bl_text_fini(&text);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: belay_generate FOLDER\n", stderr);
        return 2;
    }
    page_folder(argv[1], "docs");
    page_folder(argv[1], "include");
    page_folder(argv[1], "include/belay");
    return page_write(tool, argv[1], "docs/ops.md", write_ops) |
           page_write(tool, argv[1], "docs/faults.md", write_faults) |
           page_write(tool, argv[1], "docs/settings.md", write_settings) |
           page_write(tool, argv[1], "include/belay/op_rows.h", write_header);
}
