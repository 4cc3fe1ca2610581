// The weights of a model with an adapter added to them, or taken out again: W + s B A, W - s B A.
#ifndef CLI_EXPORT_EXPORT_MERGE_H
#define CLI_EXPORT_EXPORT_MERGE_H

#include "cli/export/export.h"

typedef struct export_merge export_merge;

// model: that of a run with an adapter, whose base model base.json names; or any other, with the
// adapter in the folder `peft`. sign: 1 adds the adapter, -1 subtracts it.
NODISCARD status export_merge_open(cli_context *cli, const cli_model *model, const char *peft,
                                   int sign, export_merge **out);
void export_merge_close(export_merge *m); // NULL is legal
// The values of a weight of the base model, whose model is `weights`, with the adapter merged.
NODISCARD status export_merge_weight(export_merge *m, const op_model *weights, int64_t weight,
                                     float *values);
// The values of one tensor of the adapter: rows of its weight `weight` of *model.
const op_model *export_merge_model(const export_merge *m);
const decoder_spec *export_merge_spec(const export_merge *m);
NODISCARD status export_merge_part(export_merge *m, int64_t weight, int part, float *values);
// Writes adapter_config.json and adapter_model.safetensors into v->work and reads them back.
// wanted: DTYPE_COUNT is automatic.
NODISCARD status export_adapter_write(export_job *v, export_merge *m, dtype wanted);

#endif
