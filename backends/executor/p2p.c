#include "backends/executor/p2p.h"

#include "sim/base/alloc.h"

sp_i_exec_box *sp_i_exec_mail_box(const sp_i_exec_mail *mail, const sp_i_exec_address *at)
{
    size_t unit = (size_t)at->vstage * mail->packs[at->gradient] + (size_t)at->pack;
    return &mail->boxes[at->gradient][unit * mail->seats + (size_t)at->seat];
}

sp_status sp_i_exec_mail_init(sp_i_exec_mail *mail, sp_machine *machine, size_t vstages,
                              size_t forward_packs, size_t backward_packs, size_t seats,
                              sp_error *err)
{
    *mail = (sp_i_exec_mail){
        .vstages = vstages, .packs = {forward_packs, backward_packs}, .seats = seats};
    mail->arena = sp_i_exec_arena_new_shared(machine);
    if (mail->arena != NULL) {
        pthread_mutex_init(&mail->lock, NULL);
    }
    for (int i = 0; i < 2; i++) {
        mail->boxes[i] = sp_i_calloc(vstages * mail->packs[i] * seats, sizeof **mail->boxes);
    }
    return mail->arena != NULL && mail->boxes[0] != NULL && mail->boxes[1] != NULL
               ? SP_OK
               : sp_error_no_memory(err, "hidden states on their way");
}

void sp_i_exec_mail_fini(sp_i_exec_mail *mail)
{
    if (mail->arena != NULL) {
        sp_i_exec_arena_free(mail->arena);
        pthread_mutex_destroy(&mail->lock);
    }
    sp_i_free(mail->boxes[0]);
    sp_i_free(mail->boxes[1]);
    *mail = (sp_i_exec_mail){0};
}

void *sp_i_exec_mail_open(sp_i_exec_mail *mail, const sp_i_exec_address *to, int64_t elements,
                          sp_i_exec_width width)
{
    sp_i_exec_box *box = sp_i_exec_mail_box(mail, to);
    pthread_mutex_lock(&mail->lock);
    box->content = sp_i_exec_take(mail->arena, SP_MEM_COMMUNICATION, elements, width);
    pthread_mutex_unlock(&mail->lock);
    return box->content;
}

sp_status sp_i_exec_mail_failure(sp_i_exec_mail *mail, char *text, size_t text_bytes)
{
    pthread_mutex_lock(&mail->lock);
    sp_status status = sp_i_exec_arena_failure(mail->arena, text, text_bytes);
    pthread_mutex_unlock(&mail->lock);
    return status;
}

void sp_i_exec_mail_post(sp_i_exec_mail *mail, const sp_i_exec_address *to, sp_comm *me, int reader,
                         int64_t ns)
{
    sp_comm_flag_raise_later(me, reader, &sp_i_exec_mail_box(mail, to)->full, ns);
}

sp_status sp_i_exec_mail_wait(sp_i_exec_mail *mail, const sp_i_exec_address *at, sp_comm *me,
                              int writer, const char *what, sp_error *err)
{
    return sp_comm_flag_wait(me, &sp_i_exec_mail_box(mail, at)->full, writer, what, err);
}

const void *sp_i_exec_mail_read(const sp_i_exec_mail *mail, const sp_i_exec_address *at)
{
    return sp_i_exec_mail_box(mail, at)->content;
}

void sp_i_exec_mail_drop(sp_i_exec_mail *mail, const sp_i_exec_address *at)
{
    sp_i_exec_box *box = sp_i_exec_mail_box(mail, at);
    sp_i_exec_mail_give(mail, box->content);
    box->content = NULL;
    sp_comm_flag_clear(&box->full);
}

void sp_i_exec_mail_give(sp_i_exec_mail *mail, void *content)
{
    pthread_mutex_lock(&mail->lock);
    sp_i_exec_give(mail->arena, content);
    pthread_mutex_unlock(&mail->lock);
}

int64_t sp_i_exec_mail_left(const sp_i_exec_mail *mail)
{
    return sp_i_exec_blocks(mail->arena);
}
