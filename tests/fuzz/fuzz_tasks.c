// Fuzz entry: what `eval` and `generate` are asked from a file: HellaSwag's examples after an 'h', a
// task file, an empty line and its items after a 't', else a list of prompts. What is taken keeps the
// promises that scoring and drawing rest on.
#include "cli/infer/prompt_list.h"
#include "infer/hellaswag.h"
#include "infer/task.h"
#include "memory_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(const char *name)
{
    const error_record *e = error_last();
    const int code = status_exit_code(e->code);
    ASSERT(code == 5 || code == 2 || code == 3 || e->code == ST_NO_MEMORY);
    ASSERT(strstr(e->text, name) != NULL || e->code == ST_NO_MEMORY);
}

static void examples(const host *h, arena *a, const char *name)
{
    data_tokenizer *t = NULL;
    hellaswag_list list = {0};
    const status opened = data_tokenizer_open(h, a, "bytes", &t);
    ASSERT(opened == ST_OK);
    if (hellaswag_read(h, a, t, name, 0, &list) != ST_OK) check_refusal(name);
    for (int64_t i = 0; i < list.count; i++) {
        const hellaswag_example *e = &list.items[i];
        ASSERT(e->ending_count > 0 && e->ending_count <= HELLASWAG_ENDINGS_MAX);
        ASSERT(e->label >= 0 && e->label < e->ending_count);
        for (int64_t k = 0; k < e->ending_count; k++) {
            const hellaswag_ending *ending = &e->endings[k];
            ASSERT(ending->context >= 0 && ending->context <= ending->count);
            ASSERT(ending->count <= list.longest);
            for (int64_t n = 0; n < ending->count; n++) ASSERT(ending->ids[n] >= 0);
        }
    }
    data_tokenizer_close(t);
}

static void items_check(const task_items *items)
{
    for (int64_t i = 0; i < items->count; i++) {
        const task_item *x = &items->items[i];
        ASSERT(x->choice_count >= 2 && x->gold >= 0 && x->gold < x->choice_count);
        for (int64_t k = 0; k < x->choice_count; k++) {
            const task_choice *c = &x->choices[k];
            ASSERT(c->context > 0 && c->context < c->count && c->count <= items->longest);
            ASSERT(c->characters > 0 && c->bytes >= c->characters);
            for (int64_t n = 0; n < c->count; n++) ASSERT(c->ids[n] >= 0);
        }
    }
}

// The items are read under the name i.jsonl, whatever the task file says.
static void task(const host *h, arena *a)
{
    data_tokenizer *t = NULL;
    task_spec spec = {.file = NULL};
    task_items items = {.count = 0};
    const status opened = data_tokenizer_open(h, a, "bytes", &t);
    ASSERT(opened == ST_OK);
    status st = task_load(h, a, "t.yaml", &spec);
    spec.data = "i.jsonl";
    if (spec.shots_data != NULL) spec.shots_data = "i.jsonl";
    if (st == ST_OK) st = task_read(h, a, t, &spec, 100, &items);
    if (st == ST_OK) items_check(&items);
    data_tokenizer_close(t);
}

static void prompts(const host *h, arena *a, const char *name)
{
    cli_context cli = {.h = h, .a = a};
    prompt_list list = {0};
    if (prompt_list_file(&cli, name, &list) != ST_OK) {
        check_refusal(name);
        return;
    }
    int64_t sum = 0;
    for (int64_t i = 0; i < list.count; i++) {
        ASSERT(list.items[i].count >= 0);
        for (int64_t k = 0; k < list.items[i].count; k++) sum += list.items[i].bytes[k];
    }
    ASSERT(sum < INT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *a = NULL;
    if (size < 1 || arena_create("fuzz", 256 << 20, &a) != ST_OK) return 0;
    if (data[0] == 't') {
        const char *bytes = (const char *)data + 1, *end = bytes + size - 1;
        const char *at = bytes;
        while (at + 1 < end && (at[0] != '\n' || at[1] != '\n')) at++;
        const char *rest = at + 1 < end ? at + 2 : end;
        memory_files both = {0};
        both.files[0] = (struct file){"t.yaml", bytes, at - bytes, NULL};
        both.files[1] = (struct file){"i.jsonl", rest, end - rest, NULL};
        const host two = {.api = &memory_api, .state = &both};
        task(&two, a);
        arena_destroy(a);
        return 0;
    }
    const char *name = data[0] == 'h' ? "h.jsonl" : "prompts.txt";
    memory_files files = {0};
    files.files[0] = (struct file){name, data + 1, (int64_t)size - 1, NULL};
    const host h = {.api = &memory_api, .state = &files};
    if (data[0] == 'h') {
        examples(&h, a, name);
    } else {
        prompts(&h, a, name);
    }
    arena_destroy(a);
    return 0;
}
