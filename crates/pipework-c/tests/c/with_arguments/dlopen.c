/* Repeatedly loads the library at the given path, uses it, closes it and forks. */
#include <pipework.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A function of the library by its own name. ISO C has no cast from an object to a function. */
#define FIND(name)                                      \
    __typeof__(&name) name##_found;                     \
    do {                                                \
        void *found = dlsym(library, #name);            \
        memcpy(&name##_found, &found, sizeof found);    \
        if (found == NULL) return __LINE__;             \
    } while (0)
#define OK(call) \
    if ((call) != PWK_OK) return __LINE__

static int use(void *library) {
    pwk_segment *segment = NULL;
    pwk_client *client = NULL;
    pwk_server *server = NULL;
    pwk_buffer buffer = PWK_BUFFER;
    pwk_request request;
    uint64_t ticket;
    int doorbell;
    FIND(pwk_segment_anonymous);
    FIND(pwk_client_new);
    FIND(pwk_server_new);
    FIND(pwk_client_send);
    FIND(pwk_client_recv);
    FIND(pwk_client_doorbell);
    FIND(pwk_server_recv);
    FIND(pwk_server_reply);
    FIND(pwk_buffer_free);
    FIND(pwk_client_free);
    FIND(pwk_server_free);
    FIND(pwk_segment_free);
    OK(pwk_segment_anonymous_found(NULL, &segment, NULL));
    OK(pwk_client_new_found(segment, NULL, &client, NULL));
    OK(pwk_server_new_found(segment, NULL, &server, NULL));
    /* A thread that waits on behalf of the loop. */
    OK(pwk_client_doorbell_found(client, &doorbell, NULL));
    OK(pwk_client_send_found(client, "hello", 5, PWK_NEVER, &ticket, NULL));
    OK(pwk_server_recv_found(server, PWK_NEVER, &buffer, &request, NULL));
    OK(pwk_server_reply_found(server, request.ticket, buffer.data, buffer.len, NULL));
    OK(pwk_client_recv_found(client, ticket, PWK_NEVER, &buffer, NULL));
    int failed = buffer.len == 5 ? 0 : __LINE__;
    pwk_buffer_free_found(&buffer);
    pwk_client_free_found(client);
    pwk_server_free_found(server);
    pwk_segment_free_found(segment);
    close(doorbell);
    return failed;
}

int main(int argc, char **argv) {
    for (int i = 0; i < 3 && argc == 2; i++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
        int failed = use(library);
        if (failed != 0) return fprintf(stderr, "line %d\n", failed), 1;
        dlclose(library);
        int status;
        pid_t child = fork();
        if (child == 0) _exit(0);
        if (waitpid(child, &status, 0) != child || status != 0) return 1;
    }
    return argc != 2;
}
