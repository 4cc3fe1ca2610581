// Batches of steps: combines the tokenizer, the data files and their order.
#ifndef TRAIN_LOADER_H
#define TRAIN_LOADER_H

#include "base/hash.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "data/prompts.h"
#include "exec/exec.h"
#include "model/model.h"

typedef struct train_loader train_loader;
struct data_chat;

// Opens the tokenizer only; the model may need its vocabulary.
NODISCARD status train_loader_open(const host *h, arena *a, const run_config *r,
                                   train_loader **out);
int64_t train_loader_vocab(const train_loader *l);
// Returns the model of the configuration. Without model.vocab the vocabulary is that of the preset,
// or that of the tokenizer if it is larger (then r->model.vocab is filled in).
NODISCARD status train_loader_model(train_loader *l, run_config *r, decoder_spec *out);
const char *train_loader_tokenizer(const train_loader *l);
// Converts text to token shards in cache_folder if they do not exist yet, and splits off the
// validation data. Calls `heard` (may be NULL) every few MB, with a progress line if the work is
// long, else with NULL, and with warnings about the text; any status but ST_OK that it returns ends
// the work.
NODISCARD status train_loader_prepare(train_loader *l, const char *cache_folder,
                                      status (*heard)(void *context, log_level level,
                                                      const char *line),
                                      void *context);
// Access to tokenizer and dataset, to inspect training data; the dataset exists after prepare.
const struct data_tokenizer *train_loader_decoder(const train_loader *l);
// The same to encode texts, while no thread of the loader runs.
struct data_tokenizer *train_loader_encoder(train_loader *l);
// A chat template by its name ("auto": that of data.template), with this loader's tokenizer.
NODISCARD status train_loader_chat(train_loader *l, const char *name, struct data_chat **out);
const struct data_dataset *train_loader_dataset(const train_loader *l);
// Leaves out these documents, samples or prompts in place of those before (data.exclude of the
// configuration at first), before start.
NODISCARD status train_loader_exclude(train_loader *l, const char *const *entries, int64_t count);
// Those that are left out now.
void train_loader_excluded(const train_loader *l, const char *const **entries, int64_t *count);
// The prompts of a run that draws completions, which has no dataset. NULL: it has a dataset.
const data_prompts *train_loader_prompts(const train_loader *l);
int64_t train_loader_sequences(const train_loader *l); // of the training data, in one epoch
bool train_loader_has_valid(const train_loader *l);
// The data and how much of it the run reads, in words. In `a`.
NODISCARD status train_loader_about(const train_loader *l, arena *a, const run_config *r,
                                    char **out);
int64_t train_loader_tokens(const train_loader *l); // of the training data
int64_t train_loader_sources(const train_loader *l);
hash128 train_loader_id(const train_loader *l); // hash of the data's order and content
// Starts a thread that fills this rank's batches ahead. The first one is that of first_step, which
// follows first_sequence consumed sequences.
NODISCARD status train_loader_start(train_loader *l, const plan_mesh *mesh, int64_t first_step,
                                    int64_t first_sequence);
// Returns the batch of the next step in the executor's form; it is valid until the next call.
// input->host holds the values that the caller expects.
NODISCARD status train_loader_take(train_loader *l, int64_t step, exec_input *input,
                                   int64_t *wait_ns);
// Fills this rank's part of a validation batch, in the calling thread.
NODISCARD status train_loader_valid(train_loader *l, int64_t first, int64_t count,
                                    exec_input *input);
// The part of a training batch that the rank in place `dp` of the same other coordinates has. *own:
// its first sequence within the batch.
NODISCARD status train_loader_share(train_loader *l, int32_t dp, int64_t first, int64_t count,
                                    exec_input *input, int64_t *own);
// The same of any split and place, and the sequences of such a batch that are this rank's.
NODISCARD status train_loader_rows(train_loader *l, data_split split, int64_t first, int64_t count,
                                   exec_input *input);
void train_loader_mesh(train_loader *l, const plan_mesh *mesh); // before train_loader_start
void train_loader_own(const train_loader *l, int64_t *first, int64_t *count);
// Copies this rank's positions of whole sequences, with layout.cp those that it has.
void train_loader_positions(const train_loader *l, const int32_t *from, int64_t count, int32_t *to);
// Sets the reference's log-probabilities, two of each sample, those of training first; borrowed.
void train_loader_reference(train_loader *l, const double *values, int64_t train_count);
void train_loader_close(train_loader *l); // NULL is legal

#endif
