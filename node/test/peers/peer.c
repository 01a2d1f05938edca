/* The other end of languages.test.mjs in C: opens PATH, serve PATH, call PATH or echo. */

#include <ctype.h>
#include <pipework.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pwk_error error; /* of the last call that failed */

static void must(pwk_status status) {
    char text[256];
    if (status == PWK_OK) return;
    pwk_error_text(&error, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    exit(1);
}

static int is(pwk_buffer *data, const char *text) {
    return data->len == strlen(text) && memcmp(data->data, text, data->len) == 0;
}

static void raise_case(char *bytes, size_t len) {
    for (size_t i = 0; i < len; i++) bytes[i] = (char)toupper((unsigned char)bytes[i]);
}

static void serve(const char *path) {
    pwk_segment *segment = NULL;
    pwk_server *server = NULL;
    pwk_buffer data = PWK_BUFFER;
    pwk_blobs blobs = PWK_BLOBS;
    pwk_request request;
    must(pwk_segment_open_or_create(path, NULL, &segment, &error));
    must(pwk_server_new(segment, NULL, &server, &error));
    for (;;) {
        must(pwk_server_recv(server, PWK_NEVER, &data, &request, &error));
        if (is(&data, "fail")) {
            must(pwk_server_fail(server, request.ticket, "no: \xc3\xa4", 6, NULL, &error));
        } else if (is(&data, "parts")) {
            must(pwk_server_part(server, request.ticket, "one", 3, 0, PWK_NEVER, NULL, &error));
            must(pwk_server_part(server, request.ticket, "two", 3, 0, PWK_NEVER, NULL, &error));
            must(pwk_server_reply(server, request.ticket, NULL, 0, &error));
        } else {
            must(pwk_server_blobs(server, request.ticket, &blobs, &error));
            raise_case(data.data, data.len);
            pwk_message reply = {data.data, data.len, blobs.blobs, blobs.count, request.flags + 1};
            must(pwk_server_reply_blobs(server, request.ticket, &reply, PWK_NEVER, NULL, &error));
        }
    }
}

static void call(const char *path) {
    static char large[100000];
    pwk_segment *segment = NULL;
    pwk_client *client = NULL;
    pwk_blob_draft *draft = NULL;
    pwk_blob *blob = NULL;
    pwk_stream *stream = NULL;
    pwk_buffer reply = PWK_BUFFER;
    pwk_blobs blobs = PWK_BLOBS;
    uint32_t flags;
    must(pwk_segment_open(path, NULL, &segment, &error));
    must(pwk_client_new(segment, NULL, &client, &error));
    must(pwk_blob_draft_new(segment, 6, &draft, &error));
    memcpy(pwk_blob_draft_space(draft).data, "a blob", 6);
    must(pwk_blob_draft_freeze(draft, &blob, &error));
    pwk_message request = {"abc", 3, &blob, 1, 41};
    must(pwk_client_call_blobs(client, &request, PWK_NEVER, &reply, &flags, &blobs, &error));
    printf("%.*s %u %.*s\n", (int)reply.len, (char *)reply.data, (unsigned)flags,
           (int)pwk_blob_bytes(blobs.blobs[0]).len, (const char *)pwk_blob_bytes(blobs.blobs[0]).data);

    memset(large, 'x', sizeof large);
    must(pwk_client_call(client, large, sizeof large, PWK_NEVER, &reply, &error));
    size_t count = 0;
    for (size_t i = 0; i < reply.len; i++) count += ((char *)reply.data)[i] == 'X';
    printf("%zu\n", count);

    const char *space = "";
    must(pwk_client_stream(client, "parts", 5, 0, PWK_NEVER, &stream, &error));
    pwk_status status;
    while ((status = pwk_stream_next_part(stream, PWK_NEVER, &reply, NULL, &error)) == PWK_OK) {
        if (reply.len > 0) printf("%s%.*s", space, (int)reply.len, (char *)reply.data);
        space = " ";
    }
    if (status != PWK_CLOSED) must(status);
    status = pwk_client_call(client, "fail", 4, PWK_NEVER, &reply, &error);
    if (status != PWK_FAILED) exit(1);
    printf("\n%.*s\n", (int)reply.len, (char *)reply.data);
}

static void echo(void) {
    pwk_atomic_reader *reader = NULL;
    pwk_atomic_writer *writer = NULL;
    pwk_item message;
    pwk_atomic_options options;
    printf("loading...\n");
    fflush(stdout);
    pwk_atomic_options_init(&options, sizeof options);
    must(pwk_atomic_reader_from_fd(STDIN_FILENO, PWK_FD_LEND, &options, &reader, &error));
    options.mixed = options.compress = true;
    must(pwk_atomic_writer_from_fd(STDOUT_FILENO, PWK_FD_LEND, &options, &writer, &error));
    pwk_status status;
    while ((status = pwk_atomic_reader_recv(reader, PWK_NEVER, &message, &error)) == PWK_OK) {
        char *raised = malloc(message.len + 1);
        memcpy(raised, message.data, message.len);
        raise_case(raised, message.len);
        must(pwk_atomic_writer_send(writer, raised, message.len, PWK_NEVER, &error));
        free(raised);
    }
    if (status != PWK_CLOSED) must(status);
    must(pwk_atomic_writer_close(writer, PWK_NEVER, &error));
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "", *path = count > 2 ? arguments[2] : "";
    pwk_segment *segment = NULL;
    if (strcmp(mode, "opens") == 0) must(pwk_segment_open(path, NULL, &segment, &error));
    else if (strcmp(mode, "serve") == 0) serve(path);
    else if (strcmp(mode, "call") == 0) call(path);
    else echo();
    return 0;
}
