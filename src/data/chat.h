// Conversations and instructions as training samples: ids, and which of them are trained.
//
// A line of a JSON-lines file is one sample, in one of these forms:
//   text       {"text": ...}: all of it is trained
//   messages   {"messages": [{"role": ..., "content": ...}, ...], "tools": ...}
//   prompt     {"prompt": ..., "completion": ...}: texts, or lists of messages
//   alpaca     {"instruction": ..., "input": ..., "output": ..., "system": ...}
//   sharegpt   {"conversations": [{"from": ..., "value": ...}, ...], "system": ...}
//   pairs      {"prompt": ..., "chosen": ..., "rejected": ...}: texts, or lists of messages.
//              Without a prompt it is what both answers begin with: whole messages, or words
//   labelled   {"prompt": ..., "completion": ..., "label": true}
//   rollouts   {"prompt": ..., "completions": [...], "rewards": [...], "old": [[...], ...],
//              "reference": [[...], ...]}: answers to one prompt, a reward for each, and the
//              log-probabilities of their tokens when they were drawn, and under a reference model.
//              Each completion is a sample
// A sample of the last two forms is two documents with the same prompt. The second one of a
// labelled line has the completion of the line before (the first line its own): an answer to
// another prompt, from which KTO takes its reference point.
// A chat template turns messages into text. Trained are the tokens of what the assistant says: its
// text and its end token, neither the header before nor the line end after. A template may mark
// that itself ({% generation %}); otherwise the text before a turn is the conversation up to it
// with add_generation_prompt, and the turn ends where the conversation with it ends. A message with
// "weight": 0 is not trained.
#ifndef DATA_CHAT_H
#define DATA_CHAT_H

#include "base/format/json.h"
#include "base/text.h"
#include "data/reader.h"

#ifdef __cplusplus
extern "C" {
#endif

// As data.format spells them, in this order.
typedef enum data_format {
    DATA_FORMAT_AUTO, // by the keys of the first line
    DATA_FORMAT_TEXT,
    DATA_FORMAT_MESSAGES,
    DATA_FORMAT_PROMPT,
    DATA_FORMAT_ALPACA,
    DATA_FORMAT_SHAREGPT,
    // The objectives that compare answers choose these two; data.format does not name them.
    DATA_FORMAT_PAIRS,    // prompt, chosen, rejected
    DATA_FORMAT_LABELLED, // prompt, completion, label
    DATA_FORMAT_ROLLOUTS  // prompt, completions, rewards, old, reference
} data_format;
// As data.trained spells them, in this order: the turns of an assistant that are trained.
typedef enum data_trained { DATA_TRAINED_ALL, DATA_TRAINED_LAST } data_trained;

typedef struct data_chat_spec {
    // "auto": that of the tokenizer's folder; "none"; "chatml", "llama3"; or a file. NULL is auto.
    const char *source;
    const char *folder;        // of the tokenizer: tokenizer_config.json, chat_template.jinja
    data_tokenizer *tokenizer; // borrowed
    data_format format;
    data_trained trained;
    bool scores;    // the last token of each document has the label, and no other
    bool compares;  // rollouts need "reference"
    bool divides;   // advantages are divided by the standard deviation of the line's rewards
    int64_t unix_s; // the time that strftime_now shows; not the present one, as a resumed run must
                    // see the same data
} data_chat_spec;

typedef struct data_chat data_chat;

// A sample; its lists are reused from one to the next. Zero-initialise.
typedef struct data_sample {
    data_ids ids;
    data_bytes trained; // one byte a token: 1 if the token is to be predicted
    int64_t turns;      // of the assistant, that are trained
    int64_t ended;      // of these, the ones whose last token is a special token
    bool empty_prompt;  // nothing stands before the first trained token
    int64_t second;     // token where the second document begins; 0: there is one document
    bool wanted;        // label of a labelled line
    // Rollouts: the completion to encode, and those of the line; its advantage over the others; the
    // log-probabilities (double) of its trained tokens, in order. reference: none if not given.
    int64_t completion, completions;
    double advantage;
    data_bytes old, reference;
} data_sample;
void data_sample_deinit(data_sample *s);

// The template is in `a`; close frees the rest.
NODISCARD status data_chat_open(const host *h, arena *a, const data_chat_spec *spec,
                                data_chat **out);
// Encodes one line. `what` and `line` stand in errors, which are ST_DATA.
NODISCARD status data_chat_encode(data_chat *c, const char *bytes, int64_t count, const char *what,
                                  int64_t line, data_sample *out);
// The text that asks for an answer: the template with these messages and the header of an answer.
// system: NULL for none. In `a`. The ids of the result are those with special tokens recognised.
NODISCARD status data_chat_prompt(data_chat *c, arena *a, const char *system, const char *user,
                                  int64_t user_bytes, text *out);
// The same for a list of messages with a text "role" and a text "content" each. The memory of what
// was rendered before is used again.
NODISCARD status data_chat_ask(data_chat *c, arena *a, const json *messages, text *out);
// The ids of the tokens that end an answer: the template's, and the usual ones that the tokenizer
// has. Returns their number, at most DATA_CHAT_ENDS_MAX.
enum { DATA_CHAT_ENDS_MAX = 8 };
int64_t data_chat_ends(const data_chat *c, int32_t ends[DATA_CHAT_ENDS_MAX]);
// The folder of a tokenizer that is written as data.tokenizer; NULL for "bytes". In `a`.
NODISCARD status data_chat_folder(const host *h, arena *a, const char *tokenizer, const char **out);
const char *data_chat_template(const data_chat *c); // its name, for people
bool data_chat_has_template(const data_chat *c);    // false: the tokenizer's folder has none
void data_chat_close(data_chat *c);                 // NULL is legal

#ifdef __cplusplus
}
#endif
#endif
