/* SPDX-License-Identifier: Apache-2.0 */
/* Data: texts or ids in, batches of tensors out.
 *
 *   file, texts, ids or callback -> dataset -> loader (workers, prefetch, seeded order) -> batches
 *
 * Makers never return NULL: what cannot be made is a nil object, the context has the fault, and the nil object absorbs:
 * it answers questions with 0, false or NULL and says nothing more.  Everything belongs to its context and dies with
 * it; what one object needs of another it holds on to, so they may be closed in any order.  One that was closed and that
 * nobody holds on to is life.stale and absorbs, too.  One thread uses a context, and so its data, at a time; what
 * workers do is inside. */
#ifndef BELAY_DATA_H
#define BELAY_DATA_H

#include <belay/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct belay_tokenizer belay_tokenizer;
typedef struct belay_labels belay_labels;
typedef struct belay_dataset belay_dataset;
typedef struct belay_loader belay_loader;

/* ---- tokenizers ------------------------------------------------------------------------------------------------- */

/* What a token is.  Texts are first brought to NFKC with default-ignorable characters dropped and, unless keep_case is
 * set, full case folding (Unicode standard 3.13, toNFKC_Casefold).
 *
 *   CHAR  each extended grapheme cluster (UAX 29), white space too
 *   WORD  a run of letters, numbers and connectors (categories L*, N*, Pc) with its marks (M*), with an apostrophe
 *         between two letters or numbers; a wide letter (ideographs, kana, hangul) by itself; any other punctuation or
 *         symbol (P*, S*) by itself; separators and controls (Z*, C*) lie between tokens and are none */
typedef enum belay_tokens { BELAY_TOKENS_CHAR = 0, BELAY_TOKENS_WORD = 1 } belay_tokens;

/* A vocabulary: id 0 is padding, id 1 unknown, then the tokens of the training part, the most frequent first, equal
 * counts in byte order.  It comes from a dataset or from the JSON text of one: {"version": 1, "kind": "char",
 * "keep_case": false, "tokens": [...]}.  Faults: file.format names the first value that is wrong; mem.exhausted. */
BELAY_API belay_tokenizer *belay_tokenizer_from_json(belay_context *ctx, const char *json);

/* The JSON text, until the tokenizer dies; NULL for nil, or without memory (mem.exhausted). */
BELAY_API const char *belay_tokenizer_to_json(belay_tokenizer *tokenizer);

/* Ids go from 0 to n_tokens - 1. */
BELAY_API int64_t belay_tokenizer_n_tokens(const belay_tokenizer *tokenizer);

/* The token of an id as NUL-ended UTF-8; NULL for padding, unknown and what is no id. */
BELAY_API const char *belay_tokenizer_token(const belay_tokenizer *tokenizer, int64_t id);

/* Fills ids [seq] from n_bytes of text: cut at seq, padded with 0 at the end.  Codes: data.text for bytes that are not
 * UTF-8 or are NUL, conf.value for a negative size or NULL, conf.order for nil, mem.exhausted. */
BELAY_API BELAY_MUST_USE belay_code belay_tokenizer_encode(belay_tokenizer *tokenizer, const char *text,
                                                           int64_t n_bytes, int64_t *ids, int64_t seq);

BELAY_API void belay_tokenizer_free(belay_tokenizer *tokenizer);

/* ---- labels ----------------------------------------------------------------------------------------------------- */

/* The classes: the labels of the training part, in order of value when all are whole numbers without sign or leading
 * zeros, else in byte order.  JSON: ["de", "en", ...].  Faults as for the tokenizer. */
BELAY_API belay_labels *belay_labels_from_json(belay_context *ctx, const char *json);
BELAY_API const char *belay_labels_to_json(belay_labels *labels);
BELAY_API int64_t belay_labels_n_classes(const belay_labels *labels);
/* The label of a class, NUL-ended; NULL for what is no class. */
BELAY_API const char *belay_labels_name(const belay_labels *labels, int64_t class_id);
/* The class of a label, -1 when there is none. */
BELAY_API int64_t belay_labels_class(const belay_labels *labels, const char *label);
BELAY_API void belay_labels_free(belay_labels *labels);

/* ---- datasets --------------------------------------------------------------------------------------------------- */

/* How texts become samples; zero means what stands in brackets. */
typedef struct belay_text_options {
    int64_t seq;                /* ids of a sample (20) */
    const char *text, *label;   /* names of the columns ("text", "label") */
    belay_tokens tokens;        /* (CHAR) */
    bool keep_case;             /* no case folding */
    int64_t min_count;          /* a token must stand so often in the training part (1) */
    int64_t max_tokens;         /* of the vocabulary, padding and unknown not counted (1,000,000) */
    double valid_split;         /* this share of the rows becomes the validation part (0: none; below 1) */
    uint64_t seed;              /* of the split (the context's seed) */
    belay_tokenizer *tokenizer; /* use this one instead of making one; tokens ... max_tokens have no meaning then */
    belay_labels *labels;       /* likewise; a label that is not among them is data.label */
    int64_t keep_bytes;         /* of a file keep at most so many bytes of ids, beyond read rows again (1 GiB) */
} belay_text_options;

/* From a .tsv, .csv or .jsonl file, by its extension.  A sample is a row: its text cut at seq, its label's class.  The
 * vocabulary and the labels come from the training part only; a label whose rows would all be in the validation part
 * keeps its first row for training.  Memory: 20 bytes a row, 8 more with a validation part, and the ids (1, 2 or 4
 * bytes each, without padding) or, past keep_bytes, no ids: then rows are read from the file again when they are got.
 * Texts are never kept.  An empty text is a sample of padding. Faults: conf.value, file.open, file.read, file.limit,
 * file.format, data.empty, data.column, data.row, data.text, data.label, data.single (one label or one token only, when
 * they are to be made), mem.exhausted. */
BELAY_API belay_dataset *belay_dataset_open(belay_context *ctx, const char *path, const belay_text_options *options);

/* From texts [n] and labels [n] in memory, which may go away afterwards; nothing but ids is kept. */
BELAY_API belay_dataset *belay_dataset_texts(belay_context *ctx, const char *const *texts, const char *const *labels,
                                             int64_t n, const belay_text_options *options);

/* How ids that are already there become samples. */
typedef struct belay_ids_options {
    int64_t seq;       /* ids of a sample; must be given */
    int64_t n_tokens;  /* what belay_loader_n_tokens is to answer (0) */
    int64_t n_classes; /* likewise */
} belay_ids_options;

/* From ids [n, seq] and labels [n] in memory, copied.  Values are not looked at: the operations check them. */
BELAY_API belay_dataset *belay_dataset_ids(belay_context *ctx, const int64_t *ids, const int64_t *labels, int64_t n,
                                           const belay_ids_options *options);

/* One sample, as a dataset of yours gives it. */
typedef struct belay_sample {
    int64_t *room;      /* [capacity], zeroed: put the ids here, */
    const int64_t *ids; /* or point here at ids of your own, which must stay until the next get on the same thread */
    int64_t capacity;   /* seq */
    int64_t n_ids;      /* how many ids there are, at most capacity; padded with 0 */
    int64_t label;
    const char *file; /* where the sample comes from, for reports; NULL: nowhere; copied when get returns */
    int64_t line;     /* in that file, from 1; 0: none */
    const char *why;  /* when get fails: a sentence for the report; copied when get returns */
} belay_sample;

/* Fills `sample` with number `index` (0 .. n_samples - 1); any code but BELAY_OK refuses it: the batch then faults with
 * data.worker, which names the sample, or with mem.exhausted, where get gives that: it ends a run.  Called from as many
 * threads at once as the loader has workers.  There, a call of Belay with the context does nothing, gives nil or the
 * code, and refuses the sample: the batch faults with place.worker, which names the call's line and the sample.  A
 * context that get itself opens on that thread may be used on it. */
typedef belay_code (*belay_sample_get)(void *state, int64_t index, belay_sample *sample);

/* From a callback.  `state` is the caller's and outlives the dataset.  The result of each get is checked: the number of
 * ids, that nothing was written past the room; ids and labels themselves are checked by the operations. */
BELAY_API belay_dataset *belay_dataset_callback(belay_context *ctx, int64_t n_samples, belay_sample_get get,
                                                void *state, const belay_ids_options *options);

/* The validation part of a dataset made with valid_split; conf.order when there is none. */
BELAY_API belay_dataset *belay_dataset_validation(belay_dataset *dataset);

BELAY_API bool belay_dataset_is_nil(const belay_dataset *dataset);
BELAY_API int64_t belay_dataset_n_samples(const belay_dataset *dataset);
BELAY_API int64_t belay_dataset_seq(const belay_dataset *dataset);
BELAY_API int64_t belay_dataset_n_tokens(const belay_dataset *dataset);
BELAY_API int64_t belay_dataset_n_classes(const belay_dataset *dataset);
/* Of a text dataset, owned by it; nil objects for the others. */
BELAY_API belay_tokenizer *belay_dataset_tokenizer(const belay_dataset *dataset);
BELAY_API belay_labels *belay_dataset_labels(const belay_dataset *dataset);
BELAY_API void belay_dataset_close(belay_dataset *dataset);

/* ---- loaders ---------------------------------------------------------------------------------------------------- */

typedef struct belay_loader_options {
    int64_t batch;                    /* samples of a batch (64) */
    bool shuffle;                     /* each epoch in an order of its own, a function of (seed, epoch) only */
    bool drop_last;                   /* leave out an epoch's last batch when it is not full */
    int64_t workers;                  /* threads that fill batches ahead (0: the calling thread does, when asked) */
    int64_t prefetch;                 /* batches filled or being filled ahead of the caller (2 a worker) */
    uint64_t seed;                    /* of the order (the context's seed) */
    int64_t start_epoch, start_batch; /* the first batch to give, both from 0: to go on where a run stopped */
    int64_t rank, ranks;              /* of a group: the share of each global batch that is given (0 of 1) */
    belay_text_options data;          /* for belay_loader_open: how the file becomes a dataset */
} belay_loader_options;

/* A batch: the handles belong to the loader and die at its next call (next, get, close). */
typedef struct belay_batch {
    belay_tensor tokens; /* i64 [n_samples, seq], named "tokens"; nil when a sample was refused */
    belay_tensor labels; /* i64 [n_samples], named "labels"; likewise */
    int64_t n_samples;
    int64_t n_global;        /* samples of the global batch; n_samples without ranks */
    int64_t first;           /* place of its first sample in the global batch */
    int64_t epoch, position; /* which batch this is, both from 0 */
    belay_code code;         /* BELAY_OK, or the fault that the context has for this batch */
} belay_batch;

/* A loader over a dataset, which it holds on to.
 *
 * With `ranks`, batches are those of a whole group: a global batch is ranks * batch samples next to each other in the
 * order, of which each rank is given its own part, in the order of ranks.  The last of an epoch, when it is not full, is
 * split as evenly as can be: parts differ by one sample at most, and a rank without any is given a batch of none, with
 * nil handles and BELAY_OK.  So all ranks have as many batches, and the same ones whatever their number is where ranks
 * * batch is the same. */
BELAY_API belay_loader *belay_loader_new(belay_dataset *dataset, const belay_loader_options *options);

/* A loader over a file: belay_dataset_open with options->data, then belay_loader_new. */
BELAY_API belay_loader *belay_loader_open(belay_context *ctx, const char *path, const belay_loader_options *options);

/* The next batch of the epoch; false at its end, and the call after that begins the next epoch.  Which samples a batch
 * holds depends on seed, epoch and position only, never on the workers.
 * A batch with a sample that its dataset refused comes with nil handles: operations given them do nothing, the context
 * has data.worker (mem.exhausted where memory ended) naming the sample, its step is not applied, and the loop goes on.
 */
BELAY_API bool belay_loader_next(belay_loader *loader, belay_batch *batch);

/* Batch `position` of the epoch that the last next spoke of (before any: the start epoch), read again in the calling
 * thread; the walk of next is not moved.  False when the epoch has no such batch. */
BELAY_API bool belay_loader_get(belay_loader *loader, int64_t position, belay_batch *batch);

BELAY_API bool belay_loader_is_nil(const belay_loader *loader);
BELAY_API belay_dataset *belay_loader_dataset(const belay_loader *loader);
BELAY_API int64_t belay_loader_n_samples(const belay_loader *loader);
BELAY_API int64_t belay_loader_n_tokens(const belay_loader *loader);
BELAY_API int64_t belay_loader_n_classes(const belay_loader *loader);
/* Batches of an epoch, global ones: the same on all ranks. */
BELAY_API int64_t belay_loader_n_batches(const belay_loader *loader);
/* Threads that really run: fewer than asked for when the system gives no more. */
BELAY_API int64_t belay_loader_n_workers(const belay_loader *loader);

/* Where sample `row` of the batch last given comes from: its number in the dataset, or -1; its file (NULL: none) and
 * line (0: none), until the loader's next call. */
BELAY_API int64_t belay_loader_origin(const belay_loader *loader, int64_t row, const char **file, int64_t *line);

/* Ends the workers, at any moment: a get that is running is waited for. */
BELAY_API void belay_loader_close(belay_loader *loader);

/* ---- token files ------------------------------------------------------------------------------------------------ */

/* A file of tokens in llm.c's format: 256 int32 (20240520, version 1, number of tokens), then the tokens as uint16, all
 * little-endian.  Header and length are compared before anything else is read; file.format says what is wrong.  Faults:
 * file.open, file.read, file.format, mem.exhausted. */
typedef struct belay_token_file belay_token_file;
BELAY_API belay_token_file *belay_token_file_open(belay_context *ctx, const char *path);
BELAY_API bool belay_token_file_is_nil(const belay_token_file *file);
BELAY_API int64_t belay_token_file_n_tokens(const belay_token_file *file);
/* Rows of `length` tokens from starts [n] on: [n, length] u16, a temporary of the innermost scope.  The tokens are not
 * looked at: the operations check them.  Faults: conf.value for a row that is not whole in the file, file.read. */
BELAY_API belay_tensor belay_token_file_rows(belay_token_file *file, const int64_t *starts, int64_t n, int64_t length);
BELAY_API void belay_token_file_close(belay_token_file *file);

#ifdef __cplusplus
}
#endif
#endif
