// Reads values of a config.json. Internal to model/.
#ifndef MODEL_SPEC_READ_H
#define MODEL_SPEC_READ_H

#include "model/arch/arch.h"
#include "model/spec.h"

typedef struct model_reader {
    const char *file; // for error messages
    const json *root;
    arena *a;
    const model_arch *arch;
} model_reader;

typedef struct double_limits {
    double min, max; // inclusive
} double_limits;

enum { MODEL_SHOWN_BYTES = 64 };
// Formats a string of the file for error messages: short, and without terminal control characters.
const char *model_read_shown(const char *source, char buffer[MODEL_SHOWN_BYTES]);
// Describes the value found, for error messages.
const char *model_read_found(const json *value, char buffer[MODEL_SHOWN_BYTES]);
// Fails: names file, key, what was expected and what was found.
status model_read_wrong(const model_reader *r, const char *key, const json *value,
                        const char *expected);
bool model_read_given(const json *value); // neither absent nor null
NODISCARD status model_read_int_value(const model_reader *r, const char *key, const json *value,
                                      model_limits limits, int64_t *out);
// Absent or null: returns `otherwise` if it is not negative, else refuses.
NODISCARD status model_read_int(const model_reader *r, const char *key, model_limits limits,
                                int64_t otherwise, int64_t *out);
// A NaN `otherwise` makes the key required.
NODISCARD status model_read_real(const model_reader *r, const json *map, const char *key,
                                 double_limits limits, double otherwise, double *out);
NODISCARD status model_read_float(const model_reader *r, const char *key, double most,
                                  double otherwise, float *out);
NODISCARD status model_read_bool(const model_reader *r, const json *map, const char *key,
                                 bool otherwise, bool *out);
// Refuses options of `map` that change the mathematics in a way that is not supported.
NODISCARD status model_read_refuse(const model_reader *r, const json *map);
// Returns the key whose value has the options of rotary positions that count (spec_hf_rope.c).
const char *model_rope_key(const model_reader *r);
// Reads rotary positions (spec_hf_rope.c).
NODISCARD status model_rope_read(const model_reader *r, decoder_spec *s);

#endif
