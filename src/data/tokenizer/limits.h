// `truncation` and `padding` of a tokenizer.json. Private to this folder.
#ifndef DATA_TOKENIZER_LIMITS_H
#define DATA_TOKENIZER_LIMITS_H

#include "base/format/json.h"
#include "data/tokenizer/family.h"

// Fills t->limits; its texts are in `a`.
NODISCARD status limits_read(arena *a, const char *path, const json *root, data_tokenizer *t);
// Cuts the ids of a text from `first` on. added: the ids that stand around it.
NODISCARD status limits_cut(const data_tokenizer *t, int64_t first, int64_t added, data_ids *out);
// Fills the ids from `first` on up.
NODISCARD status limits_fill(const data_tokenizer *t, int64_t first, data_ids *out);

#endif
