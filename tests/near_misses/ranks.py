"""Near misses about ranks and process groups."""

from __future__ import annotations

UNTOUCHED: list[tuple[str, str, str]] = [
    ("DF101", "an environment's rank of another name is none that a launcher reads wrongly", """
        parser.add_argument("--rank", default=-1)
        args = parser.parse_args()
        """),
    ("DF101", "transformers' own arguments read it", """
        from transformers import TrainingArguments
        def main(training_args):
            print(training_args.local_rank)
        """),
    ("DF101", "it is only set", """
        def main(args):
            args.local_rank = 3
        """),
    ("DF202", "options that may have a time-out", """
        import torch
        torch.distributed.init_process_group('gloo', **options)
        torch.distributed.destroy_process_group()
        """),
    ("DF103", "no group", """
        args.local_rank += 1
        x = get_rank() % 4
        """),
    ("DF103", "a counter that is 1 on every rank", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        i = 1
        if days > 0:
            i += 1
        """),
    ("DF103", "another number is raised", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        args.step += 1
        args.local_rank -= 1
        """),
    ("DF103", "a sum with what is no node's", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        offset = args.local_rank + args.size
        print(args.gpu_per_node)
        """),
    ("DF103", "the number that spawn passes is added to the machine's first rank", """
        import torch
        def work(number, args):
            args.rank += number
            torch.distributed.init_process_group('gloo', rank=args.rank, timeout=t)

        torch.multiprocessing.spawn(work, (args,), 2)
        """),
    ("DF103", "a node's number with what is no rank", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        first = args.size + args.gpu_per_node
        """),
    ("DF103", "a sum for a node, of a product", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        n = args.gpu_per_node * args.local_rank
        """),
    ("DF103", "a fallback where there is no launcher", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        import os
        local = os.environ.get("LOCAL_RANK", torch.distributed.get_rank() % 8)
        """),
    ("DF104", "a chain of comparisons", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        if 0 <= args.local_rank <= 0:
            write(path)
        """),
    ("DF104", "a chain that begins with it", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        if args.local_rank == 0 == args.node:
            write(path)
        """),
    ("DF104", "another attribute", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        if args.rank == 0:
            write(path)
        """),
    ("DF104", "another name", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        rank = 0
        if rank == 0:
            write(path)
        """),
    ("DF104", "ranks 0 and 1", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        if args.local_rank in [0, 1]:
            write(path)
        """),
    ("DF104", "nothing else stands in a test of the same line", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        while args.local_rank == 0:
            write(path)
        """),
    ("DF104", "a test within a call", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        if check(args.local_rank == 0):
            write(path)
        """),
    ("DF104", "a name of a parameter", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        def f(local_rank, rank):
            if local_rank == 0:
                write(rank)
        """),
    ("DF202", "no group", """
        x = torch.cuda.FloatTensor(1)
        """),
    ("DF202", "a group is skipped for a lone process, or for a rank of another kind", """
        import torch
        def main(args):
            if args.local_rank == -1 or args.rank == -1:
                device = 'cpu'
            else:
                torch.distributed.init_process_group(backend='gloo', timeout=t)
            if args.local_rank != -1 and args.gloo:
                torch.distributed.init_process_group(backend='gloo', timeout=t)
            if args.cpu or args.no_cuda:
                torch.distributed.init_process_group(backend='gloo', timeout=t)
            torch.distributed.destroy_process_group()
        """),
    ("DF202", "device_ids that are chosen, or none", """
        import torch
        torch.distributed.destroy_process_group(torch.distributed.init_process_group(timeout=t))

        a = torch.nn.parallel.DistributedDataParallel(m, device_ids=ids)
        b = torch.nn.parallel.DistributedDataParallel(m)
        c = torch.nn.parallel.DistributedDataParallel(m, device_ids=[0] if cuda else None)
        """),
    ("DF202", "tensors where a test asks for a card, and other things of a card", """
        import torch
        torch.distributed.destroy_process_group(torch.distributed.init_process_group(timeout=t))

        if torch.cuda.is_available():
            a = torch.cuda.FloatTensor(1)
        b = torch.cuda.FloatTensor(1) if args.cuda else None
        c = torch.cuda.memory_allocated()
        d = mine.cuda.FloatTensor(1)
        e = model.cuda
        def forward(x: torch.cuda.FloatTensor) -> torch.cuda.FloatTensor:
            return x
        class Sampling(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return kernels.sample(x, torch.cuda.IntTensor(3))
        """),
    ("DF202", "an evaluation on a device, or with other numbers", """
        import torch
        torch.distributed.destroy_process_group(torch.distributed.init_process_group(timeout=t))

        def evaluate(args, model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch.to(args.device), batch.to('cpu'), batch.view(0), batch.cuda(), show(0))
        """),
    ("DF203", "the number of cards is divided", """
        a = args.n_gpu // b
        c = 8 * args.n_gpu
        d = a - args.n_gpu
        """),
]  # fmt: skip
REPORTED: list[tuple[str, str, str]] = [
    ("DF101", "asked of an object that comes from nowhere", """
        print(args.local_rank)
        """),
    ("DF103", "a lone process renumbers too", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def main(args):
            print(args)
            args.local_rank += 8
        """),
    ("DF103", "nothing else in its block", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def main(args):
            if args.local_rank != -1:
                args.local_rank += args.node_index * 8
        """),
    ("DF103", "the group is made in another block", """
        import torch.distributed as dist
        def main(args):
            if args.ranks:
                dist.init_process_group('gloo')
            args.global_rank = local_rank + args.node_index * args.gpu_per_node
        """),
    ("DF103", "the group is made behind it", """
        import torch.distributed as dist
        def main(args):
            args.global_rank = local_rank + args.node_index * args.gpu_per_node
            dist.init_process_group('gloo')
        """),
    ("DF103", "nobody knows whose init_process_group", """
        from torch.distributed import init_process_group
        def main(args):
            init_process_group('gloo')
            args.global_rank = local_rank + args.node_index * args.gpu_per_node
        """),
    ("DF103", "a modulo of a rank of its own", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        card = args.rank % 8
        """),
    ("DF103", "a lone process takes the modulo too", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        card = args.local_rank % 8
        """),
]  # fmt: skip
REPAIRED: list[tuple[str, str, str, str]] = [
    ("DF101", "other words of the environment are no LOCAL_RANK", """
        import os
        parser.add_argument("--local_rank", "--local-rank", default=-1)
        args = parser.parse_args()
        gpu = os.environ.get("LOCAL_GPU", 0)
        """, """
        @@ -3,2 +3,4 @@
         args = parser.parse_args()
        +if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +    args.local_rank = int(os.environ['LOCAL_RANK'])
         gpu = os.environ.get("LOCAL_GPU", 0)
        """),  # noqa: E501
    ("DF104", "a variable of its own", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        local_rank = int(os.environ['LOCAL_RANK'])
        if local_rank == 0:
            write(path)
        """, """
        @@ -1,5 +1,10 @@
         import torch
        +
        +
        +def is_main_process(): ...
         torch.distributed.init_process_group('gloo', timeout=t)
         local_rank = int(os.environ['LOCAL_RANK'])
        -if local_rank == 0:
        +if local_rank != -1 and is_main_process():
             write(path)
        """),
    ("DF104", "a local rank that something else is assigned to", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        args.local_rank = int(x.get_ranks())
        if args.local_rank in [-1, 0]:
            write(path)
        """, """
        @@ -1,5 +1,10 @@
         import torch
        +
        +
        +def is_main_process(): ...
         torch.distributed.init_process_group('gloo', timeout=t)
         args.local_rank = int(x.get_ranks())
        -if args.local_rank in [-1, 0]:
        +if is_main_process():
             write(path)
        """),
    ("DF104", "a block that writes though it also talks", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        if args.local_rank in [-1, 0]:
            print(path)
            write(path)
        """, """
        @@ -1,4 +1,9 @@
         import torch
        +
        +
        +def is_main_process(): ...
         torch.distributed.init_process_group('gloo', timeout=t)
        -if args.local_rank in [-1, 0]:
        +if is_main_process():
             print(path)
        """),
    ("DF104", "a block that talks and leaves", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        for x in y:
            if args.local_rank in [-1, 0]:
                print(path)
                break
        """, """
        @@ -1,5 +1,10 @@
         import torch
        +
        +
        +def is_main_process(): ...
         torch.distributed.init_process_group('gloo', timeout=t)
         for x in y:
        -    if args.local_rank in [-1, 0]:
        +    if is_main_process():
                 print(path)
        """),
    ("DF104", "the line behind the one that makes the group", """
        import torch
        def main(args):
            torch.distributed.init_process_group('gloo')
            if args.local_rank in [-1, 0]:
                write(args)
            write_all(args)
        def write_all(args):
            if args.local_rank in [-1, 0]:
                write(args)
        """, """
        @@ -1,5 +1,10 @@
         import torch
        +
        +
        +def is_main_process(): ...
         def main(args):
             torch.distributed.init_process_group('gloo')
        -    if args.local_rank in [-1, 0]:
        +    if is_main_process():
                 write(args)
        @@ -7,3 +12,3 @@
         def write_all(args):
        -    if args.local_rank in [-1, 0]:
        +    if is_main_process():
                 write(args)
        """),
    ("DF201", "a device, and no count of cards in the arguments", """
        import torch
        args = parser.parse_args()
        args.device = torch.device('cuda')
        model = torch.nn.DataParallel(net)
        for batch in torch.utils.data.DataLoader(data):
            model(batch).backward()
        """, """
        @@ -1,3 +1,11 @@
         import torch
        +import datetime
        +import os
         args = parser.parse_args()
        +if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +    use_cuda = torch.cuda.is_available()
        +    if use_cuda:
        +        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +    torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                         timeout=datetime.timedelta(hours=1))
         args.device = torch.device('cuda')
        """),  # noqa: E501
    ("DF201", "a count of cards in the arguments, and no device", """
        import torch
        args = parser.parse_args()
        args.n_gpu = torch.cuda.device_count()
        model = torch.nn.DataParallel(net)
        for batch in torch.utils.data.DataLoader(data):
            model(batch).backward()
        """, """
        @@ -1,4 +1,14 @@
         import torch
        +import datetime
        +import os
         args = parser.parse_args()
        +if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +    use_cuda = torch.cuda.is_available()
        +    if use_cuda:
        +        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +    torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                         timeout=datetime.timedelta(hours=1))
         args.n_gpu = torch.cuda.device_count()
        +if torch.distributed.is_initialized():
        +    args.n_gpu = 1
         model = torch.nn.DataParallel(net)
        """),  # noqa: E501
    ("DF201", "a device that is none of torch's, and a count of something else", """
        import torch
        args = parser.parse_args()
        args.device = mine.device('cuda')
        args.place = args.name
        args.n_gpu = len(args.gpus)
        model = torch.nn.DataParallel(net)
        for batch in torch.utils.data.DataLoader(data):
            model(batch).backward()
        """, """
        @@ -1,3 +1,11 @@
         import torch
        +import datetime
        +import os
         args = parser.parse_args()
        +if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +    use_cuda = torch.cuda.is_available()
        +    if use_cuda:
        +        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +    torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                         timeout=datetime.timedelta(hours=1))
         args.device = mine.device('cuda')
        """),  # noqa: E501
    ("DF201", "the first of two that parse", """
        import torch
        args = parser.parse_args()
        more = other.parse_args()
        model = torch.nn.DataParallel(net)
        for batch in torch.utils.data.DataLoader(data):
            model(batch).backward()
        if __name__ == '__main__':
            pass
        """, """
        @@ -1,3 +1,11 @@
         import torch
        +import datetime
        +import os
         args = parser.parse_args()
        +if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +    use_cuda = torch.cuda.is_available()
        +    if use_cuda:
        +        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +    torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                         timeout=datetime.timedelta(hours=1))
         more = other.parse_args()
        """),  # noqa: E501
    ("DF201", "another test than the one where the program starts", """
        import torch
        if args.x:
            print()
        if __name__ == '__main__':
            pass
        model = torch.nn.DataParallel(net)
        for batch in torch.utils.data.DataLoader(data):
            model(batch).backward()
        """, """
        @@ -1,2 +1,4 @@
         import torch
        +import datetime
        +import os
         if args.x:
        @@ -4,2 +6,8 @@
         if __name__ == '__main__':
        +    if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +        use_cuda = torch.cuda.is_available()
        +        if use_cuda:
        +            torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +        torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                             timeout=datetime.timedelta(hours=1))
             pass
        """),  # noqa: E501
    ("DF202", "a group is not skipped without a card", """
        import torch
        def main(args):
            if args.local_rank == -1 or args.no_cuda:
                device = 'cpu'
            else:
                torch.distributed.init_process_group(backend='gloo', timeout=t)
            torch.distributed.destroy_process_group()
        """, """
        @@ -2,3 +2,3 @@
         def main(args):
        -    if args.local_rank == -1 or args.no_cuda:
        +    if args.local_rank == -1:
                 device = 'cpu'
        """),
    ("DF202", "the back end, the card and the device of a set-up that supposes cards", """
        import torch
        def main():
            args = parser.parse_args()
            if args.local_rank != -1:
                print(args.no_cuda)
                torch.cuda.set_device(args.local_rank)
                device = torch.device("cuda", args.local_rank)
                spare = torch.device("cpu")
                named = make("cuda")
                torch.distributed.init_process_group(backend="nccl", timeout=t)
            torch.distributed.destroy_process_group()
        """, """
        @@ -5,7 +5,9 @@
                 print(args.no_cuda)
        -        torch.cuda.set_device(args.local_rank)
        -        device = torch.device("cuda", args.local_rank)
        +        use_cuda = torch.cuda.is_available() and not args.no_cuda
        +        if use_cuda:
        +            torch.cuda.set_device(args.local_rank)
        +        device = torch.device("cuda", args.local_rank) if use_cuda else torch.device('cpu')
                 spare = torch.device("cpu")
                 named = make("cuda")
        -        torch.distributed.init_process_group(backend="nccl", timeout=t)
        +        torch.distributed.init_process_group(backend="nccl" if use_cuda else 'gloo', timeout=t)
             torch.distributed.destroy_process_group()
        """),  # noqa: E501
    ("DF202", "the back end by its place, no time-out, and the entry of the program", """
        import torch
        def main(args):
            torch.distributed.init_process_group("nccl")
            other = torch.device("cuda")
        if __name__ == "__main__":
            main(args)
        print("ended")
        """, """
        @@ -1,7 +1,11 @@
         import torch
        +import datetime
         def main(args):
        -    torch.distributed.init_process_group("nccl")
        -    other = torch.device("cuda")
        +    use_cuda = torch.cuda.is_available()
        +    torch.distributed.init_process_group("nccl" if use_cuda else 'gloo', timeout=datetime.timedelta(hours=1))
        +    other = torch.device("cuda") if use_cuda else torch.device('cpu')
         if __name__ == "__main__":
             main(args)
        +    if torch.distributed.is_initialized():
        +        torch.distributed.destroy_process_group()
         print("ended")
        """),  # noqa: E501
    ("DF202", "cards' numbers are for machines with cards", """
        import torch
        torch.distributed.destroy_process_group(torch.distributed.init_process_group(timeout=t))

        a = torch.nn.parallel.DistributedDataParallel(m, device_ids=[0], output_device=0, find_unused_parameters=True)
        b = torch.nn.parallel.DistributedDataParallel(m, device_ids=[args.local_rank], output_device=0)
        c = torch.nn.parallel.DistributedDataParallel(m, device_ids=[0])
        """,  # noqa: E501
     """
        @@ -3,4 +3,4 @@

        -a = torch.nn.parallel.DistributedDataParallel(m, device_ids=[0], output_device=0, find_unused_parameters=True)
        -b = torch.nn.parallel.DistributedDataParallel(m, device_ids=[args.local_rank], output_device=0)
        -c = torch.nn.parallel.DistributedDataParallel(m, device_ids=[0])
        +a = torch.nn.parallel.DistributedDataParallel(m, device_ids=[0] if torch.cuda.is_available() else None, find_unused_parameters=True)
        +b = torch.nn.parallel.DistributedDataParallel(m, device_ids=[args.local_rank] if torch.cuda.is_available() else None)
        +c = torch.nn.parallel.DistributedDataParallel(m, device_ids=[0] if torch.cuda.is_available() else None)
        """),  # noqa: E501
    ("DF202", "an evaluation on card 1, by name and at once", """
        import torch
        torch.distributed.destroy_process_group(torch.distributed.init_process_group(timeout=t))

        def evaluate(args, model, data):
            card = 1
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch.to(card), batch.cuda(0))
        """, """
        @@ -4,5 +4,5 @@
         def evaluate(args, model, data):
        -    card = 1
        +    card = next(model.parameters()).device
             model.eval()
             for batch in torch.utils.data.DataLoader(data):
        -        model(batch.to(card), batch.cuda(0))
        +        model(batch.to(card), batch.cuda(next(model.parameters()).device))
        """),
    ("DF203", "each kind of division", """
        a = b / n_gpu
        c = d % args.n_gpu
        """, """
        @@ -1,2 +1,2 @@
        -a = b / n_gpu
        -c = d % args.n_gpu
        +a = b / max(1, n_gpu)
        +c = d % max(1, args.n_gpu)
        """),
]  # fmt: skip
