// Presets: catalog/models/*.yaml, which the build puts into the program, so that it needs no files.
#ifndef MODEL_PRESET_H
#define MODEL_PRESET_H

#include "base/format/options.h"
#include "model/model.h"

typedef struct model_preset_file {
    const char *name; // of the file, without .yaml
    const char *yaml;
} model_preset_file;
extern const model_preset_file model_preset_files[]; // made by CMake; ends with an empty row

// What a preset says beyond its spec.
typedef struct model_preset_facts {
    const char *about;
    int64_t parameters; // as published, to the last one; 0: not so
    double published;   // in 1e9, as published or told; 0: nothing is
    // Where from; keys that were reported, or are assumed (all others are public); what differs.
    option_list sources, reported, assumed, differs;
} model_preset_facts;
// From a preset's text; `name` stands in errors.
NODISCARD status model_preset_parse(arena *a, const char *yaml, int64_t bytes, const char *name,
                                    decoder_spec *out, model_preset_facts *facts);

#endif
