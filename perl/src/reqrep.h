/*
 * Module reqrep: the four classes of Pipework::ReqRep, and its streams.
 *
 * Behind an object is its channel. It attaches to the segment with the first call that
 * needs it, so a process that only makes a segment is no member of it.
 */
#ifndef PWP_REQREP_H
#define PWP_REQREP_H

#include "pwperl.h"

/* The classes: an index of pwp_reqrep_classes. */
enum { PWP_SERVER, PWP_CLIENT, PWP_INT_SERVER, PWP_INT_CLIENT };
#define PWP_IS_CLIENT(role) ((role) & 1)
#define PWP_IS_INT(role) ((role) & 2)

/* In an XSUB: the class that it was called for, and the state behind its object. */
#define PWP_ROLE (XSANY.any_i32)
#define PWP_CHANNEL ((pwp_channel *)pwp_state(aTHX_ self, &pwp_reqrep_classes[PWP_ROLE]))

/* Gives the functions that are written for one class to the others that have them. */
void pwp_reqrep_share(pTHX);

extern const pwp_class pwp_reqrep_classes[4];
extern const pwp_class pwp_stream_class;
extern const pwp_class pwp_blob_class;
extern const pwp_class pwp_draft_class;

/* Bytes of an integer. */
#define PWP_INT_BYTES sizeof(int64_t)

/* An eventfd that the program rings; -1 and -1 if it has none. */
typedef struct pwp_bell {
    /* The channel's own descriptor: the eventfd that was made, or a duplicate of the one set. */
    int fd;
    /* The number that the program knows: the one that it has set, or that of the one made. */
    int number;
    struct pwp_bell *next;
} pwp_bell;

/* Threads share it. But for the first three, its fields are only changed under `changing`. */
typedef struct pwp_channel {
    /* How many objects and calls in progress have it. */
    int owners;
    pwk_segment *segment;
    pwk_geometry geometry;
#ifdef USE_ITHREADS
    perl_mutex changing;
#endif
    /* One of them, once it is attached. */
    pwk_client *client;
    pwk_server *server;
    pwk_client_options terms;
    pwp_bell requests, replies;
} pwp_channel;

/* Whether a segment is one of integers: whether its requests and replies have eight bytes. */
static inline bool pwp_is_of_integers(const pwk_geometry *geometry) {
    return geometry->request_bytes == PWP_INT_BYTES && geometry->reply_bytes == PWP_INT_BYTES;
}

/* The name of the class in messages. */
const char *pwp_class_called(pTHX_ int role);

/* ------------------------------------------------ reqrep.c: channels */

pwp_channel *pwp_channel_new(pTHX_ pwk_segment *segment);
pwp_channel *pwp_channel_hold(pwp_channel *channel);
void pwp_channel_release(pTHX_ void *channel);

/* The client or the server, which attaches first if it must; PWK_OK, or why it could not. */
pwk_status pwp_attach_client(pTHX_ pwp_channel *channel, pwk_client **client, pwk_error *error);
pwk_status pwp_attach_server(pTHX_ pwp_channel *channel, pwk_server **server, pwk_error *error);

/* An object that a call is about. */
typedef struct pwp_subject {
    SV *self;
    const pwp_class *kind;
    pwp_channel *channel;
} pwp_subject;

/* The parts of an object, after all arguments are fetched. Waits may pin its `self`. */
pwp_subject pwp_subject_of(pTHX_ SV *self, int role);

/* The same after Perl code has run, which may have destroyed the object: then this croaks. */
pwp_channel *pwp_channel_again(pTHX_ const pwp_subject *subject);

/* Completes an error that has no operation, or a function of C for one: `op` stands there then. */
void pwp_name_failure(pwk_status status, pwk_error *error, const char *op);

/* An id as a mortal. */
SV *pwp_id_sv(pTHX_ uint64_t id);

/* ------------------------------------------------ reqrep_payload.c */

/* Bit 0 of the flags of a request or reply: its bytes are a string with Perl's UTF-8 flag. */
#define PWP_IS_UTF8 1

/* A request or a reply. An integer is its eight bytes, as this machine has them. */
typedef struct pwp_payload {
    /* Lent; `flags` go with them. The data of an integer that is sent is `number`. */
    pwk_bytes bytes;
    uint32_t flags;
    bool is_number;
    int64_t number;
} pwp_payload;

#define PWP_NO_PAYLOAD ((pwp_payload){{NULL, 0}, 0, false, 0})

/* Where the bytes of a payload are. */
static inline const void *pwp_payload_data(const pwp_payload *payload) {
    return payload->is_number ? (const void *)&payload->number : payload->bytes.data;
}

/* The payload of an argument that was fetched, lent until Perl code runs. */
pwp_payload pwp_payload_of(pTHX_ SV *fetched, int role);

/* Copies the bytes, so that they last until the statement is over. */
void pwp_payload_keep(pTHX_ pwp_payload *payload);

/* A payload as a new mortal. The UTF-8 flag is set only if the bytes are valid: a peer may lie. */
SV *pwp_payload_sv(pTHX_ const pwp_payload *payload, int role);

/* Memory of this interpreter for received data; it lasts until Perl code runs. */
pwk_buffer *pwp_scratch(pTHX);
/* To be called when its bytes are copied: gives much memory back. */
void pwp_scratch_done(pTHX);

/* ------------------------------------------------ reqrep_blob.c: blobs */

/* The blobs of a message that is sent, or of one that is received. They last until the statement is over. */
typedef struct pwp_blobs {
    /* One more than can be sent: the library has the words for too many. */
    pwk_blob *sent[PWK_MAX_BLOBS + 1];
    size_t count;
    pwk_blobs received;
} pwp_blobs;

/* An empty list. */
pwp_blobs *pwp_blobs_new(pTHX);
/* The blobs of the argument `blobs`, which is not fetched; NULL if it is NULL or undef. */
pwp_blobs *pwp_blobs_given(pTHX_ SV *given);

/* The arguments behind the data of a message. They are not fetched; NULL if not given. */
typedef struct pwp_with {
    SV *seconds, *blobs;
} pwp_with;

/* From the stack: `timeout => $secs` or $secs alone, if the method `takes_time`; `blobs => [...]`. */
pwp_with pwp_with_of(pTHX_ CV *cv, I32 ax, I32 first, I32 items, bool takes_time);
#define PWP_WITH(first, takes_time) pwp_with_of(aTHX_ cv, ax, first, items, takes_time)

/* A message of a payload and blobs, which may be NULL. It borrows both. */
pwk_message pwp_message_of(const pwp_payload *payload, const pwp_blobs *blobs);
/* Takes blob number `i` of those that were received, and returns it as a mortal object. */
SV *pwp_blobs_next(pTHX_ pwp_blobs *blobs, size_t i);
/* A Pipework::ReqRep::Message of the data and all blobs that were received. */
SV *pwp_message_sv(pTHX_ SV *data, pwp_blobs *blobs);

SV *pwp_reqrep_blob(pTHX_ SV *self, int role, SV *len);
SV *pwp_reqrep_blob_from(pTHX_ SV *self, int role, SV *bytes);

void pwp_draft_write(pTHX_ SV *self, SV *offset, SV *bytes);
size_t pwp_draft_length(pTHX_ SV *self);
SV *pwp_draft_freeze(pTHX_ SV *self);

size_t pwp_blob_length(pTHX_ SV *self);
SV *pwp_blob_copy(pTHX_ SV *self);
SV *pwp_blob_substr(pTHX_ SV *self, SV *offset, SV *count);
SV *pwp_blob_map(pTHX_ SV *self);
bool pwp_blob_is_copied(pTHX_ SV *self);
void pwp_blob_check(pTHX_ SV *self);

/* ------------------------------------------------ reqrep_open.c: constructors */

/* The arguments of `new` and `new_memfd` behind the first; NULL is absent. */
typedef struct pwp_sizes {
    SV *req_cap, *resp_slots, *resp_size, *arena, *mode;
} pwp_sizes;

SV *pwp_reqrep_new(pTHX_ SV *class, int role, SV *path, const pwp_sizes *sizes);
SV *pwp_reqrep_new_memfd(pTHX_ SV *class, int role, SV *name, const pwp_sizes *sizes);
SV *pwp_reqrep_new_client(pTHX_ SV *class, int role, SV *path);
SV *pwp_reqrep_new_from_fd(pTHX_ SV *class, int role, SV *fd);

/* Those that take named arguments, which are on the stack behind the class. */
SV *pwp_reqrep_create(pTHX_ CV *cv, I32 ax, I32 items, SV *class, int role, bool or_open);
SV *pwp_reqrep_open(pTHX_ CV *cv, I32 ax, I32 items, SV *class, int role);

void pwp_reqrep_unlink(pTHX_ SV *self, int role, SV *path);

/* ------------------------------------------------ reqrep_facts.c: facts about a segment */

SV *pwp_reqrep_stats(pTHX_ SV *self, int role);
SV *pwp_reqrep_audit(pTHX_ SV *self, int role);
SV *pwp_reqrep_geometry(pTHX_ SV *self, int role, SV *path);
I32 pwp_reqrep_members(pTHX_ I32 ax, SV *self, int role);
UV pwp_reqrep_recover(pTHX_ SV *self, int role);
void pwp_reqrep_sync(pTHX_ SV *self, int role);

/* ------------------------------------------------ reqrep_bell.c: eventfds and doorbells */

/* Closes what it holds. */
void pwp_bell_free(pwp_bell *bell);
pwp_bell *pwp_request_bell(pwp_channel *channel);
pwp_bell *pwp_reply_bell(pwp_channel *channel);
int pwp_bell_create(pTHX_ SV *self, int role, pwp_bell *(*which)(pwp_channel *));
void pwp_bell_set(pTHX_ SV *self, int role, pwp_bell *(*which)(pwp_channel *), SV *fd);
SV *pwp_bell_consume(pTHX_ SV *self, int role, pwp_bell *(*which)(pwp_channel *));
void pwp_channel_ring(pwp_channel *channel, pwp_bell *(*which)(pwp_channel *));
int pwp_reqrep_doorbell(pTHX_ SV *self, int role, bool is_for_sending);

/* ------------------------------------------------ reqrep_client.c: the calling end */

/* How a call returns its reply: as the original does, with exceptions, or as a message and with them. */
enum pwp_way { PWP_AS_ORIGINAL, PWP_THROWING, PWP_MESSAGE };
I32 pwp_client_req(pTHX_ I32 ax, SV *self, int role, SV *data, const pwp_with *with, enum pwp_way way);
I32 pwp_client_send(pTHX_ I32 ax, SV *self, int role, SV *data, const pwp_with *with, bool rings);
I32 pwp_client_send_wait(pTHX_ I32 ax, SV *self, int role, SV *data, const pwp_with *with, bool rings);
I32 pwp_client_get(pTHX_ I32 ax, SV *self, int role, SV *id);
I32 pwp_client_get_wait(pTHX_ I32 ax, SV *self, int role, SV *id, SV *seconds, bool as_message);
I32 pwp_client_recv_any(pTHX_ I32 ax, SV *self, int role, SV *seconds, bool as_message);
void pwp_client_cancel(pTHX_ SV *self, int role, SV *id);
bool pwp_client_forget(pTHX_ SV *self, int role, SV *id);

/* ------------------------------------------------ reqrep_stream.c */

SV *pwp_client_stream(pTHX_ SV *self, int role, SV *data, const pwp_with *with);
I32 pwp_stream_next(pTHX_ I32 ax, SV *self, SV *seconds, bool as_message);

/* ------------------------------------------------ reqrep_server.c: the answering end */

I32 pwp_server_recv(pTHX_ I32 ax, SV *self, int role);
I32 pwp_server_recv_wait(pTHX_ I32 ax, SV *self, int role, SV *seconds);
I32 pwp_server_drain(pTHX_ I32 ax, SV *self, int role, SV *max);
I32 pwp_server_recv_wait_multi(pTHX_ I32 ax, SV *self, int role, SV *max, SV *seconds);
I32 pwp_server_blobs(pTHX_ I32 ax, SV *self, int role, SV *id);
I32 pwp_server_reply(pTHX_ I32 ax, SV *self, int role, SV *id, SV *data, const pwp_with *with);
I32 pwp_server_part(pTHX_ I32 ax, SV *self, int role, SV *id, SV *data, const pwp_with *with);
I32 pwp_server_flush(pTHX_ I32 ax, SV *self, SV *id, SV *seconds);
I32 pwp_server_fail(pTHX_ I32 ax, SV *self, int role, SV *id, SV *reason);
I32 pwp_server_is_wanted(pTHX_ I32 ax, SV *self, int role, SV *id);
SV *pwp_server_redeliveries(pTHX_ SV *self, int role, SV *id);
I32 pwp_server_adopt(pTHX_ I32 ax, SV *self, int role, SV *id);
void pwp_server_clear(pTHX_ SV *self, int role);
void pwp_server_stop(pTHX_ SV *self, int role);

#endif
