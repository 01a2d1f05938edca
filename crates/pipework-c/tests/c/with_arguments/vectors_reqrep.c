/* Opens the segment at the given path, and prints its contents: see vectors/README.md. */
#include <pipework.h>

#include <stdio.h>

static void print_audit(pwk_segment *segment, const char *name) {
    pwk_audit a;
    if (pwk_segment_audit(segment, &a, sizeof a, NULL) != PWK_OK) return;
    printf("%s.free %d\n%s.filling %d\n%s.waiting %d\n", name, (int)a.free, name, (int)a.filling, name,
           (int)a.waiting);
    printf("%s.taken %d\n%s.dropped %d\n%s.done %d\n", name, (int)a.taken, name, (int)a.dropped, name,
           (int)a.done);
    printf("%s.damaged %d\n%s.orphaned %d\n%s.unqueued %d\n", name, (int)a.damaged, name, (int)a.orphaned, name,
           (int)a.unqueued);
    printf("%s.in_parts %d\n%s.entries %d\n", name, (int)a.in_parts, name, (int)a.entries);
}

int main(int argc, char **argv) {
    pwk_error error;
    pwk_segment *segment = NULL;
    pwk_server *server = NULL;
    pwk_geometry sizes;
    pwk_stats stats;
    pwk_buffer data = PWK_BUFFER;
    pwk_request request;
    size_t recovered, members;
    char text[256];
    if (argc != 2) return 1;
    if (pwk_segment_open(argv[1], NULL, &segment, &error) != PWK_OK) {
        pwk_error_text(&error, text, sizeof text);
        return printf("refused %s\n", text) < 0;
    }
    pwk_segment_geometry(segment, &sizes, sizeof sizes, NULL);
    printf("opens.slots %u\nopens.queue %u\n", (unsigned)sizes.slots, (unsigned)sizes.queue);
    printf("opens.request_bytes %u\n", (unsigned)sizes.request_bytes);
    printf("opens.reply_bytes %u\n", (unsigned)sizes.reply_bytes);
    printf("opens.members %u\n", (unsigned)sizes.members);
    printf("opens.blobs %u\n", (unsigned)sizes.blobs);
    pwk_segment_stats(segment, &stats, sizeof stats, NULL);
    printf("stats.requests %llu\n", (unsigned long long)stats.requests);
    printf("stats.replies %llu\n", (unsigned long long)stats.replies);
    print_audit(segment, "audit");
    if (pwk_segment_recover(segment, &recovered, NULL) == PWK_OK) {
        printf("recovered %d\n", (int)recovered);
    }
    print_audit(segment, "audit_after");
    if (pwk_segment_members(segment, NULL, 0, &members, NULL) == PWK_OK) {
        printf("attached %d\n", (int)members);
    }
    if (pwk_server_new(segment, NULL, &server, NULL) == PWK_OK) {
        pwk_status status = pwk_server_try_recv(server, &data, &request, NULL);
        if (status == PWK_WOULD_BLOCK) printf("recv null\n");
        if (status == PWK_CORRUPT) printf("recv corrupt\n");
        if (status == PWK_OK) {
            printf("recv.data %.*s\nrecv.flags %u\n", (int)data.len, (char *)data.data, (unsigned)request.flags);
            printf("recv.redeliveries %u\n", (unsigned)request.redeliveries);
            status = pwk_server_reply(server, request.ticket, "too late for the dead", 21, NULL);
            printf("replied %d\n", (int)status);
        }
    }
    pwk_buffer_free(&data);
    pwk_server_free(server);
    pwk_segment_free(segment);
    return 0;
}
