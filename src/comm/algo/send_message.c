// Send and receive: one message, whose contract the receiver checks.
#include "comm/algo/algo_table.h"

static status run(comm_call *call)
{
    const comm_args *a = call->args;
    const int64_t width = dtype_bytes(a->type);
    const comm_message none = {.peer = -1};
    for (int i = 0; i < a->item_count; i++) {
        comm_message m = {.peer = a->root, .bytes = a->items[i].count * width};
        if (a->op == COLLECTIVE_SEND) {
            m.send = a->items[i].in;
            TRY(call->transport->exchange(call->port, &call->contract, m, none));
        } else {
            m.receive = a->items[i].out;
            TRY(call->transport->exchange(call->port, &call->contract, none, m));
        }
    }
    return ST_OK;
}

const comm_algorithm comm_algorithm_send_message = {
    .name = "message",
    .op = COLLECTIVE_SEND,
    .order = COMM_ORDER_SHARD,
    .items = true,
    .run = run,
};

const comm_algorithm comm_algorithm_receive_message = {
    .name = "message",
    .op = COLLECTIVE_RECEIVE,
    .order = COMM_ORDER_SHARD,
    .items = true,
    .run = run,
};
