// Batches for steps: tokenizer, data files and their order behind one small interface.
#ifndef TRAIN_LOADER_H
#define TRAIN_LOADER_H

#include "base/hash.h"
#include "config/run_config.h"
#include "exec/exec.h"
#include "model/model.h"

typedef struct train_loader train_loader;

// Opens the tokenizer only; the model may need its vocabulary.
NODISCARD status train_loader_open(const host *h, arena *a, const run_config *r,
                                   train_loader **out);
int64_t train_loader_vocab(const train_loader *l);
// The model of the configuration. Without model.vocab it has its preset's vocabulary, or the
// tokenizer's where that is larger (then r->model.vocab is filled in).
NODISCARD status train_loader_model(const train_loader *l, run_config *r, decoder_spec *out);
const char *train_loader_tokenizer(const train_loader *l);
// Text becomes token shards (in cache_folder) where it is not yet; splits off the validation data.
// `heard` (may be NULL) is called every few MB, with a line where there is much to do, else NULL;
// what it returns but ST_OK ends the work.
NODISCARD status train_loader_prepare(train_loader *l, const char *cache_folder,
                                      status (*heard)(void *context, const char *line),
                                      void *context);
// For looking at what is trained on; the dataset is there after prepare.
const struct data_tokenizer *train_loader_decoder(const train_loader *l);
const struct data_dataset *train_loader_dataset(const train_loader *l);
bool train_loader_has_valid(const train_loader *l);
int64_t train_loader_tokens(const train_loader *l); // of the training data
int64_t train_loader_sources(const train_loader *l);
hash128 train_loader_id(const train_loader *l); // what order and content of the data follow from
// This rank's batches of the steps from first_step on, which come after first_sequence sequences. A
// thread fills them ahead.
NODISCARD status train_loader_start(train_loader *l, const plan_mesh *mesh, int64_t first_step,
                                    int64_t first_sequence);
// The batch of the next step, as the executor wants it; valid until the next take. input->host is
// what the caller expects of it.
NODISCARD status train_loader_take(train_loader *l, int64_t step, exec_input *input,
                                   int64_t *wait_ns);
// This rank's part of a validation batch, in this thread.
NODISCARD status train_loader_valid(train_loader *l, int64_t first, int64_t count,
                                    exec_input *input);
void train_loader_close(train_loader *l); // NULL is legal

#endif
