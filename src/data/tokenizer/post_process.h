// The tokens that a tokenizer.json puts around a text. Private to this folder.
#ifndef DATA_TOKENIZER_POST_PROCESS_H
#define DATA_TOKENIZER_POST_PROCESS_H

#include "base/format/json.h"
#include "data/tokenizer/family.h"

enum { POST_PROCESS_TEXT = -1 }; // the place of the text among the ids

// step: the member `post_processor` of the file. Fills t->around; its lists are in `a`.
NODISCARD status post_process_read(arena *a, const char *path, const json *step, data_tokenizer *t);
// Appends a text with what stands around it, as data_tokenizer_encode does.
NODISCARD status post_process_encode(data_tokenizer *t, const char *text, int64_t bytes, int flags,
                                     data_ids *out);

#endif
