// A conversion of a checkpoint to a Hugging Face folder. Shared by cmd_export.c and its parts:
//
//   export_weights.c   checkpoint -> model*.safetensors, a tensor at a time, and back to compare
//   export_files.c     the small files next to them: config, tokenizer, generation
#ifndef CLI_EXPORT_EXPORT_H
#define CLI_EXPORT_EXPORT_H

#include "base/hash.h"
#include "cli/model_folder.h"

// transformers keeps named chat templates in this folder, one file each; in a checkpoint, which has
// no folders, a file NAME.jinja is called EXPORT_TEMPLATES-NAME.jinja.
#define EXPORT_TEMPLATES "additional_chat_templates"

// One tensor of the folder: rows of a weight, with the name and layout of transformers.
typedef struct export_tensor {
    const char *name;
    int64_t weight;
    model_hf_tensor as;
    int64_t bytes;
    hash128 sum; // hash of the written bytes
    int64_t shard;
} export_tensor;

typedef struct export_job {
    cli_context *cli;
    cli_model model;       // model.folder: the checkpoint
    const char *tokenizer; // "bytes", a path, or NULL: none
    char *to, *work;       // work: temporary folder next to `to`
    dtype type;            // type of the folder's weights
    int64_t shard_bytes;
    op_model *weights;
    struct export_merge *merge; // the adapter that is merged; NULL: none
    export_tensor *tensors;
    int64_t tensor_count, shard_count;
    int64_t total_bytes;
    bool writes_card;
    const struct gate_passed *passed; // of --gated; NULL: without
    int64_t tokenizer_files;          // number of files copied or made
} export_job;

// Reads the checkpoint, decides `type` (DTYPE_COUNT: automatic) and distributes the tensors to
// files.
NODISCARD status export_weights_plan(export_job *v, dtype wanted);
// Writes the files into `work`, reads them back and compares every byte.
NODISCARD status export_weights_write(export_job *v);
NODISCARD status export_weights_check(export_job *v);

NODISCARD status export_files_write(export_job *v);

#endif
