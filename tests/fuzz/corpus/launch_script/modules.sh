torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads 16 \
    --num-experts 8 --moe-router-topk 2 --recompute-granularity selective --recompute-modules layernorm moe_act
