// A model as one GGUF file, for llama.cpp: `export --format gguf`. Internal to export/.
#ifndef CLI_EXPORT_EXPORT_GGUF_H
#define CLI_EXPORT_EXPORT_GGUF_H

#include "base/format/gguf.h"
#include "cli/export/export_merge.h"

// Writes the file v->to: weights of the checkpoint or folder, with the adapter of v->merge in them,
// and the tokenizer. type: of matrices; vectors are fp32.
NODISCARD status export_gguf_make(export_job *v, gguf_type type, bool replaces);
// Prints what was made.
NODISCARD status export_gguf_print(const export_job *v, gguf_type type);

// gguf_tokenizer.c: the keys of the tokenizer whose tokenizer.json is in v->work; without one, the
// file has no vocabulary.
NODISCARD status export_gguf_tokenizer(export_job *v, gguf_writer *w);

#endif
