// An adapter as a folder of PEFT: adapter_config.json and adapter_model.safetensors, whose tensors
// are in the order of their names, as PEFT writes them. An adapter that came from such a folder and
// was not trained is written byte for byte.
#include "cli/export/export_merge.h"

#include <stdlib.h>
#include <string.h>

typedef struct adapter_tensor {
    const char *name;
    int64_t weight;
    int part; // -1: all parts
    int ndim;
    int64_t dims[2];
} adapter_tensor;

static int compare_names(const void *x, const void *y)
{
    const adapter_tensor *a = x, *b = y;
    return strcmp(a->name, b->name);
}

static status tensors_list(arena *a, const export_merge *m, adapter_tensor **out, int64_t *count)
{
    const op_model *model = export_merge_model(m);
    int64_t capacity = 0;
    *out = NULL;
    *count = 0;
    for (int64_t w = 0; w < model->weight_count; w++) {
        const op_weight *weight = &model->weights[w];
        model_hf_tensor *tensors = NULL;
        int64_t n = 0;
        if (!weight->is_adapter) continue;
        TRY(model_hf_tensors(a, export_merge_spec(m), model, w, &tensors, &n));
        TRY(arena_grow(a, (void **)out, &capacity, *count + n, (int64_t)sizeof(**out)));
        for (int64_t i = 0; i < n; i++) {
            (*out)[(*count)++] = (adapter_tensor){.name = tensors[i].name,
                                                  .weight = w,
                                                  .part = n > 1 ? (int)i : -1,
                                                  .ndim = weight->ndim,
                                                  .dims = {tensors[i].rows, weight->columns}};
        }
    }
    qsort(*out, (size_t)*count, sizeof(**out), compare_names);
    return ST_OK;
}

static int64_t elements_of(const adapter_tensor *t)
{
    return t->ndim == 1 ? t->dims[0] : t->dims[0] * t->dims[1];
}

static status values_read(export_merge *m, const adapter_tensor *t, float *values)
{
    const op_weight *w = &export_merge_model(m)->weights[t->weight];
    if (t->part >= 0) return export_merge_part(m, t->weight, t->part, values);
    for (int i = 0; i < w->part_count; i++) {
        TRY(export_merge_part(m, t->weight, i, values + w->parts[i].row_begin * w->columns));
    }
    return ST_OK;
}

// Values of the type of the folder that the adapter came from keep it, if it holds them exactly.
static bool type_holds(dtype type, const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t narrow = 0, has = 0, is = 0;
        dtype_store(type, &narrow, 0, (double)values[i]);
        const float back = (float)dtype_load(type, &narrow, 0);
        memcpy(&has, &values[i], sizeof(has)); // bits, so that -0 differs from 0
        memcpy(&is, &back, sizeof(is));
        if (has != is) return false;
    }
    return true;
}

static status type_choose(export_merge *m, const adapter_tensor *all, int64_t count, float *values,
                          dtype wanted, dtype *out)
{
    const dtype came = export_merge_spec(m)->adapter.saved;
    *out = wanted != DTYPE_COUNT ? wanted : came;
    for (int64_t i = 0; i < count && wanted == DTYPE_COUNT && *out != DTYPE_F32; i++) {
        TRY(values_read(m, &all[i], values));
        if (!type_holds(*out, values, elements_of(&all[i]))) *out = DTYPE_F32;
    }
    return ST_OK;
}

static status tensors_write(export_merge *m, const adapter_tensor *all, int64_t count, dtype type,
                            float *values, safetensors_writer *w)
{
    safetensors_writer_pack(w);
    TRY(safetensors_writer_metadata(w, "format", "pt"));
    for (int64_t i = 0; i < count; i++) {
        TRY(safetensors_writer_declare(w, all[i].name, type, all[i].ndim, all[i].dims));
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t n = elements_of(&all[i]);
        TRY(values_read(m, &all[i], values));
        for (int64_t k = 0; k < n; k++) { // in place: no type is wider than fp32
            dtype_store(type, values, k, (double)values[k]);
        }
        TRY(safetensors_writer_put(w, values, n * dtype_bytes(type)));
    }
    return safetensors_writer_finish(w);
}

static status file_write(export_job *v, export_merge *m, dtype wanted, const char *path)
{
    adapter_tensor *all = NULL;
    safetensors_writer *w = NULL;
    int64_t count = 0, most = 1;
    TRY(tensors_list(v->cli->a, m, &all, &count));
    for (int64_t i = 0; i < count; i++) most = max_i64(most, elements_of(&all[i]));
    float *values = malloc((size_t)most * sizeof(float));
    if (values == NULL) return fail(ST_NO_MEMORY, "no memory for the adapter's values");
    status st = ST_OK;
    TRY_TO(free_values, type_choose(m, all, count, values, wanted, &v->type));
    TRY_TO(free_values, safetensors_writer_create(v->cli->h, path, &w));
    st = tensors_write(m, all, count, v->type, values, w);
    safetensors_writer_destroy(w);
    v->tensor_count = count;
    for (int64_t i = 0; i < count; i++) {
        v->total_bytes += elements_of(&all[i]) * dtype_bytes(v->type);
    }
free_values:
    free(values);
    return st;
}

// Reads the folder back as a run would.
static status folder_check(export_job *v, const export_merge *m)
{
    decoder_spec spec = *export_merge_spec(m);
    model_adapter_source back;
    TRY(model_adapter_read(v->cli->h, v->cli->a, v->work, true, &spec.adapter));
    TRY(model_adapter_open(v->cli->h, v->cli->a, &spec, export_merge_model(m), 0, &back));
    model_adapter_close(&back);
    return ST_OK;
}

status export_adapter_write(export_job *v, export_merge *m, dtype wanted)
{
    char *from = NULL, *bytes = NULL, *path = NULL;
    int64_t count = 0;
    TRY(path_join(v->cli->a, v->work, "adapter_model.safetensors", &path));
    TRY(file_write(v, m, wanted, path));
    const char *folder = export_merge_spec(m)->adapter.folder;
    if (folder == NULL) folder = v->model.folder; // of a run
    TRY(path_join(v->cli->a, folder, "adapter_config.json", &from));
    TRY(host_read_own(v->cli->h, v->cli->a, from, 1 << 20, &bytes, &count));
    TRY(path_join(v->cli->a, v->work, "adapter_config.json", &path));
    TRY(host_write_all(v->cli->h, path, bytes, count));
    return folder_check(v, m);
}
