/*
 * One program with both libraries, in C and in C++: PipeWire's names begin with `pw_`, and none of
 * them is one of ours. It prints the answer of each.
 */
#include <pipewire/pipewire.h>
#include <pipework.h>

#include <stdio.h>

/* A name of both, but for the prefix. */
static struct pw_buffer theirs;

int main(int argc, char **argv) {
    pwk_buffer ours = PWK_BUFFER;
    pwk_atomic_reader *reader = NULL;
    pwk_atomic_writer *writer = NULL;
    pwk_item message;
    pw_init(&argc, &argv);
    if (pwk_buffer_reserve(&ours, 100, NULL) != PWK_OK || theirs.buffer != NULL) return 1;
    if (pwk_atomic_pair(NULL, &reader, &writer, NULL) != PWK_OK) return 2;
    if (pwk_atomic_writer_send(writer, "hello", 5, pwk_in_ms(20000), NULL) != PWK_OK) return 3;
    if (pwk_atomic_reader_recv(reader, pwk_in_ms(20000), &message, NULL) != PWK_OK) return 4;
    printf("pipewire %s, pipework %s: %.*s\n", pw_get_library_version(), pwk_version(),
           (int)message.len, (const char *)message.data);
    pwk_atomic_writer_free(writer);
    pwk_atomic_reader_free(reader);
    pwk_buffer_free(&ours);
    pw_deinit();
    return 0;
}
