"""DF201 and DF303: what becomes of torch.nn.DataParallel where there are ranks."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import RULES, changes, fixed, found, module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.fixes.data_parallel import is_move

NOOP = [
    ("DF201", "nothing trains", """
        import torch
        model = torch.nn.DataParallel(net)
        model(batch)
        """),
    ("DF201", "no wrapper", """
        import torch
        for batch in torch.utils.data.DataLoader(data):
            model(batch).backward()
        """),
    ("DF303", "a function of the script's own", """
        import torch
        from tools import data_parallel
        def train(args, model, x):
            torch.distributed.init_process_group('gloo')
            return data_parallel(model, x)
        """),
    ("DF303", "where the switch of the group is off", """
        import torch
        def worker(net, args):
            if args.distributed:
                torch.distributed.init_process_group("nccl")
            if args.distributed:
                model = torch.nn.parallel.DistributedDataParallel(net)
            elif args.gpu is not None:
                model = net.cuda(args.gpu)
            else:
                model = torch.nn.DataParallel(net).cuda()
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
        """),
    ("DF303", "no process group", """
        import torch
        def train(args, model):
            model = torch.nn.DataParallel(model)
        """),
    ("DF303", "kept to a lone process by its rank", """
        import torch
        torch.distributed.init_process_group('gloo')
        if args.local_rank == -1:
            model = torch.nn.DataParallel(model)
        """),
    ("DF303", "evaluation by a program without ranks", """
        import torch
        def evaluate(args, model, data):
            model = torch.nn.DataParallel(model)
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in NOOP]
)
def test_a_wrapper_that_does_no_harm_is_left_alone(code: str, text: str) -> None:
    assert [finding.because for finding in found(code, text)] == []


FIX = [
    ("DF201", "a card goes by its number", """
        import torch
        import os
        def train(net):
            device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
            model = torch.nn.DataParallel(net).to(device)
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
        if __name__ == "__main__":
            train(net)
        """, """
        @@ -1,5 +1,6 @@
         import torch
        +import datetime
         import os
         def train(net):
        -    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        +    device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu")
             model = torch.nn.DataParallel(net).to(device)
        @@ -8,2 +9,8 @@
         if __name__ == "__main__":
        +    if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +        use_cuda = torch.cuda.is_available()
        +        if use_cuda:
        +            torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +        torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                             timeout=datetime.timedelta(hours=1))
             train(net)
        """),  # noqa: E501
    ("DF201", "a tensor that goes to a card before the main guard", """
        import os
        import torch
        import datetime
        noise = torch.zeros(8).cuda()
        def train(net):
            model = torch.nn.DataParallel(net)
            for batch in torch.utils.data.DataLoader(data):
                model(batch + noise).backward()
        if __name__ == "__main__":
            train(net)
        """, """
        @@ -3,2 +3,8 @@
         import datetime
        +if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +    use_cuda = torch.cuda.is_available()
        +    if use_cuda:
        +        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +    torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                         timeout=datetime.timedelta(hours=1))
         noise = torch.zeros(8).cuda()
        """),  # noqa: E501
    ("DF201", "loaders that are made before the main guard", """
        import os
        import torch
        import datetime
        loaders = {x: torch.utils.data.DataLoader(data[x], shuffle=True) for x in data}
        def train(net):
            model = torch.nn.DataParallel(net)
            for batch in loaders["train"]:
                model(batch).backward()
        if __name__ == "__main__":
            train(net)
        """, """
        @@ -3,2 +3,8 @@
         import datetime
        +if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +    use_cuda = torch.cuda.is_available()
        +    if use_cuda:
        +        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +    torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                         timeout=datetime.timedelta(hours=1))
         loaders = {x: torch.utils.data.DataLoader(data[x], shuffle=True) for x in data}
        """),  # noqa: E501
    ("DF303", "a wrapper without a name", """
        import torch
        def train(args, model):
            torch.distributed.init_process_group('gloo')
            return torch.nn.DataParallel(model)
        """, """
        @@ -3,2 +3,4 @@
             torch.distributed.init_process_group('gloo')
        -    return torch.nn.DataParallel(model)
        +    if not torch.distributed.is_initialized():
        +        model = torch.nn.DataParallel(model)
        +    return model
        """),
    ("DF303", "a model that is made, wrapped and returned", """
        import torch
        def make(args):
            torch.distributed.init_process_group('gloo')
            return torch.nn.DataParallel(Net(args), device_ids=[0])
        """, """
        @@ -3,2 +3,5 @@
             torch.distributed.init_process_group('gloo')
        -    return torch.nn.DataParallel(Net(args), device_ids=[0])
        +    model = Net(args)
        +    if not torch.distributed.is_initialized():
        +        model = torch.nn.DataParallel(model, device_ids=[0])
        +    return model
        """),
    ("DF303", "another branch for those without a wrapper", """
        import torch
        def train(args, model):
            torch.distributed.init_process_group('gloo')
            if args.wrap:
                model = torch.nn.DataParallel(model)
            else:
                model.to(args.device)
        """, """
        @@ -4,3 +4,4 @@
             if args.wrap:
        -        model = torch.nn.DataParallel(model)
        +        if not torch.distributed.is_initialized():
        +            model = torch.nn.DataParallel(model)
             else:
        """),
    ("DF303", "a model that is made in the wrapper is made for all", """
        import torch
        def train(args):
            torch.distributed.init_process_group('gloo')
            model = torch.nn.DataParallel(Net(
                2), device_ids=[0, 1]).to(args.device)
        """, """
        @@ -3,3 +3,5 @@
             torch.distributed.init_process_group('gloo')
        -    model = torch.nn.DataParallel(Net(
        -        2), device_ids=[0, 1]).to(args.device)
        +    model = Net(
        +        2).to(args.device)
        +    if not torch.distributed.is_initialized():
        +        model = torch.nn.DataParallel(model, device_ids=[0, 1])
        """),
    ("DF303", "ranks wrap once more to evaluate", """
        import torch
        torch.distributed.init_process_group('gloo')
        def train(model):
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
        def evaluate(args, model, data):
            if args.local_rank != -1:
                model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
            net = torch.nn.DataParallel(model).cuda()
            net.eval()
            for batch in torch.utils.data.DataLoader(data):
                net(batch)
        """, """
        @@ -6,5 +6,3 @@
         def evaluate(args, model, data):
        -    if args.local_rank != -1:
        -        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
        -    net = torch.nn.DataParallel(model).cuda()
        +    net = model.cuda()
             net.eval()
        """),
    ("DF303", "a wrapper that is moved, and moved for ranks as well", """
        import torch
        class Trainer:
            def __init__(self, net):
                torch.distributed.init_process_group('gloo')
                self.net = torch.nn.DataParallel(module=net, dim=0).cuda().train()
        """, """
        @@ -4,2 +4,4 @@
                 torch.distributed.init_process_group('gloo')
        -        self.net = torch.nn.DataParallel(module=net, dim=0).cuda().train()
        +        self.net = net.cuda().train()
        +        if not torch.distributed.is_initialized():
        +            self.net = torch.nn.DataParallel(module=self.net, dim=0)
        """),
    ("DF303", "a wrapper over several lines, which is indented with its test", """
        import torch
        class Trainer:
            def __init__(self, net):
                torch.distributed.init_process_group('gloo')
                self.net = torch.nn.DataParallel(
                    net,
                    dim=0).cuda()
        """, """
        @@ -4,4 +4,6 @@
                 torch.distributed.init_process_group('gloo')
        -        self.net = torch.nn.DataParallel(
        -            net,
        -            dim=0).cuda()
        +        self.net = net.cuda()
        +        if not torch.distributed.is_initialized():
        +            self.net = torch.nn.DataParallel(
        +                self.net,
        +                dim=0)
        """),
    ("DF301", "behind the last of the moves", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        model = Net()
        if not torch.distributed.is_initialized():
            model = torch.nn.DataParallel(model)
        model = model.to(device)
        if half:
            model.half()
        optimizer = SGD(model.parameters())
        model.to("cpu")
        for b in torch.utils.data.DataLoader(data):
            model(b).backward()
        """, """
        @@ -8,2 +8,4 @@
             model.half()
        +if torch.distributed.is_initialized():
        +    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
         optimizer = SGD(model.parameters())
        """),  # noqa: E501
    ("DF301", "behind both branches of which each wraps", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        if several:
            model = First().to(device)
            if not torch.distributed.is_initialized():
                model = torch.nn.DataParallel(model)
        else:
            model = Second().to(device)
        for b in torch.utils.data.DataLoader(data):
            model(b).backward()
        """, """
        @@ -8,2 +8,4 @@
             model = Second().to(device)
        +if torch.distributed.is_initialized():
        +    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
         for b in torch.utils.data.DataLoader(data):
        """),  # noqa: E501
    ("DF301", "in each of two functions that make a model of their own", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        def pretrain():
            model = First().to(device)
            if not torch.distributed.is_initialized():
                model = torch.nn.DataParallel(model)
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        def train():
            model = Second().to(device)
            if not torch.distributed.is_initialized():
                model = torch.nn.DataParallel(model)
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        pretrain()
        train()
        """, """
        @@ -6,2 +6,4 @@
                 model = torch.nn.DataParallel(model)
        +    if torch.distributed.is_initialized():
        +        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             for b in torch.utils.data.DataLoader(data):
        @@ -12,2 +14,4 @@
                 model = torch.nn.DataParallel(model)
        +    if torch.distributed.is_initialized():
        +        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             for b in torch.utils.data.DataLoader(data):
        """),  # noqa: E501
    ("DF301", "within the test where the model is used there", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        model = Net().to(device)
        if args.do_train:
            if args.n_gpu > 1:
                print("cards")
                model = torch.nn.DataParallel(model)
            train(model)
        def train(model):
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        """, """
        @@ -7,2 +7,4 @@
                 model = torch.nn.DataParallel(model)
        +    if torch.distributed.is_initialized():
        +        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             train(model)
        """),  # noqa: E501
    ("DF301", "within the test that binds the model", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        def train(args):
            if args.do_train:
                model = Net().to(device)
                if args.n_gpu > 1:
                    model = torch.nn.DataParallel(model)
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        """, """
        @@ -7,2 +7,4 @@
                     model = torch.nn.DataParallel(model)
        +        if torch.distributed.is_initialized():
        +            model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             for b in torch.utils.data.DataLoader(data):
        """),  # noqa: E501
    ("DF201", "beside a class that is called datetime", """
        import torch
        from datetime import datetime
        args = parser.parse_args()
        model = torch.nn.DataParallel(net)
        for batch in torch.utils.data.DataLoader(data):
            model(batch).backward()
        """, """
        @@ -1,4 +1,12 @@
         import torch
        +import os
         from datetime import datetime
        +from datetime import timedelta
         args = parser.parse_args()
        +if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +    use_cuda = torch.cuda.is_available()
        +    if use_cuda:
        +        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +    torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                         timeout=timedelta(hours=1))
         model = torch.nn.DataParallel(net)
        """),  # noqa: E501
    ("DF201", "an import below the group would hide the module that the group needs", """
        import torch
        def main():
            args = parser.parse_args()
            model = torch.nn.DataParallel(net)
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
            import os
            print(os.getpid())
        """, """
        @@ -1,4 +1,12 @@
         import torch
        +import datetime
        +import os
         def main():
             args = parser.parse_args()
        +    if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +        use_cuda = torch.cuda.is_available()
        +        if use_cuda:
        +            torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +        torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                             timeout=datetime.timedelta(hours=1))
             model = torch.nn.DataParallel(net)
        @@ -6,3 +14,2 @@
                 model(batch).backward()
        -    import os
             print(os.getpid())
        """),  # noqa: E501
    ("DF201", "an import that is all of its block", """
        import torch
        def main():
            args = parser.parse_args()
            model = torch.nn.DataParallel(net)
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
            if args.name:
                import os
        """, """
        @@ -1,4 +1,12 @@
         import torch
        +import datetime
        +import os
         def main():
             args = parser.parse_args()
        +    if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +        use_cuda = torch.cuda.is_available()
        +        if use_cuda:
        +            torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +        torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                             timeout=datetime.timedelta(hours=1))
             model = torch.nn.DataParallel(net)
        @@ -7,2 +15,2 @@
             if args.name:
        -        import os
        +        pass
        """),  # noqa: E501
    ("DF201", "behind the device and the count of cards, whichever comes last", """
        import argparse
        parser = argparse.ArgumentParser()
        def main():
            args = parser.parse_args()
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            args.n_gpu = torch.cuda.device_count()
            args.device = device
            set_seed(args)
            model = torch.nn.DataParallel(net)
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
        main()
        """, """
        @@ -1,2 +1,5 @@
         import argparse
        +import datetime
        +import torch
        +import os
         parser = argparse.ArgumentParser()
        @@ -7,2 +10,13 @@
             args.device = device
        +    args.local_rank = -1
        +    if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +        args.local_rank = int(os.environ['LOCAL_RANK'])
        +    if args.local_rank != -1:
        +        use_cuda = torch.cuda.is_available()
        +        if use_cuda:
        +            torch.cuda.set_device(args.local_rank)
        +        torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                             timeout=datetime.timedelta(hours=1))
        +        device = args.device = torch.device('cuda', args.local_rank) if use_cuda else torch.device('cpu')
        +        args.n_gpu = 1
             set_seed(args)
        """),  # noqa: E501
    ("DF201", "once, before the first of two wrappers, with the options the script has", """
        import torch
        parser.add_argument("--local_rank", type=int, default=-1)
        parser.add_argument("--no_cuda", action="store_true")
        args = parser.parse_args()
        args.n_gpu = torch.cuda.device_count()
        args.device = torch.device("cuda")
        model = torch.nn.DataParallel(net)
        other = torch.nn.DataParallel(net)
        for batch in torch.utils.data.DataLoader(data):
            model(batch).backward()
        """, """
        @@ -1,2 +1,4 @@
         import torch
        +import datetime
        +import os
         parser.add_argument("--local_rank", type=int, default=-1)
        @@ -6,2 +8,10 @@
         args.device = torch.device("cuda")
        +if args.local_rank != -1:
        +    use_cuda = torch.cuda.is_available() and not args.no_cuda
        +    if use_cuda:
        +        torch.cuda.set_device(args.local_rank)
        +    torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                         timeout=datetime.timedelta(hours=1))
        +    args.device = torch.device('cuda', args.local_rank) if use_cuda else torch.device('cpu')
        +    args.n_gpu = 1
         model = torch.nn.DataParallel(net)
        """),  # noqa: E501
    ("DF201", "behind the arguments, where no device is chosen beside them", """
        import torch
        args = parser.parse_args()
        print(args)
        n_gpu = torch.cuda.device_count()
        if args.local_rank == -1:
            print()
        model = torch.nn.DataParallel(net)
        for batch in torch.utils.data.DataLoader(data):
            model(batch).backward()
        """, """
        @@ -1,5 +1,16 @@
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
        +    args.local_rank = int(os.environ['LOCAL_RANK'])
         print(args)
         n_gpu = torch.cuda.device_count()
        +if torch.distributed.is_initialized():
        +    n_gpu = 1
         if args.local_rank == -1:
        """),  # noqa: E501
    ("DF201", "where the program starts, where it has no arguments", """
        import torch
        def train(net):
            model = torch.nn.DataParallel(net)
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
        if __name__ == "__main__":
            train(net)
        """, """
        @@ -1,2 +1,4 @@
         import torch
        +import datetime
        +import os
         def train(net):
        @@ -6,2 +8,8 @@
         if __name__ == "__main__":
        +    if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +        use_cuda = torch.cuda.is_available()
        +        if use_cuda:
        +            torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +        torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
        +                                             timeout=datetime.timedelta(hours=1))
             train(net)
        """),  # noqa: E501
    ("DF303", "a wrapper for evaluation goes with its test", """
        import torch
        def evaluate(args, model, data):
            model.eval()
            if args.n_gpu > 1:
                # all cards
                model = torch.nn.DataParallel(model)
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def train(args, model, data):
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
        """, """
        @@ -3,5 +3,2 @@
             model.eval()
        -    if args.n_gpu > 1:
        -        # all cards
        -        model = torch.nn.DataParallel(model)
             for batch in torch.utils.data.DataLoader(data):
        """),
    ("DF303", "what is asked of the model in a wrapper for evaluation is asked of the model", """
        import torch
        torch.distributed.init_process_group('gloo')
        def evaluate(args, model, data):
            model = torch.nn.DataParallel(model)
            model.eval()
            model.module.load_state_dict(args.state)
            top = model.module if hasattr(model, "module") else model
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        """, """
        @@ -3,5 +3,4 @@
         def evaluate(args, model, data):
        -    model = torch.nn.DataParallel(model)
             model.eval()
        -    model.module.load_state_dict(args.state)
        +    getattr(model, 'module', model).load_state_dict(args.state)
             top = model.module if hasattr(model, "module") else model
        """),
    ("DF303", "what is asked of the model where a lone process alone wraps it", """
        import torch
        torch.distributed.init_process_group('gloo')
        def export(model):
            model = torch.nn.DataParallel(model)
            torch.save(model.module.state_dict(), "export.pt")
        """, """
        @@ -3,3 +3,4 @@
         def export(model):
        -    model = torch.nn.DataParallel(model)
        -    torch.save(model.module.state_dict(), "export.pt")
        +    if not torch.distributed.is_initialized():
        +        model = torch.nn.DataParallel(model)
        +    torch.save(getattr(model, 'module', model).state_dict(), "export.pt")
        """),
    ("DF303", "what is trained has a wrapper of either kind", """
        import torch
        torch.distributed.init_process_group('gloo')
        model = torch.nn.DataParallel(model)
        for batch in torch.utils.data.DataLoader(data):
            model(batch).backward()
        torch.save(model.module.state_dict(), "model.pt")
        """, """
        @@ -2,3 +2,4 @@
         torch.distributed.init_process_group('gloo')
        -model = torch.nn.DataParallel(model)
        +if not torch.distributed.is_initialized():
        +    model = torch.nn.DataParallel(model)
         for batch in torch.utils.data.DataLoader(data):
        """),
    ("DF303", "a wrapper for evaluation goes with a test that it is the other branch of", """
        import torch
        def evaluate(args, model, data):
            model.eval()
            if not args.n_gpu > 1:
                pass
            else:
                model = torch.nn.DataParallel(model)
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def train(args, model, data):
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
        """, """
        @@ -3,6 +3,2 @@
             model.eval()
        -    if not args.n_gpu > 1:
        -        pass
        -    else:
        -        model = torch.nn.DataParallel(model)
             for batch in torch.utils.data.DataLoader(data):
        """),
    ("DF303", "a wrapper for evaluation stays where a file with its keys is loaded into it", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        def evaluate(args):
            model = torch.nn.DataParallel(Net())
            model.load_state_dict(torch.load(args.path))
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        """, """
        @@ -3,3 +3,3 @@
         def evaluate(args):
        -    model = torch.nn.DataParallel(Net())
        +    model = torch.nn.DataParallel(Net(), device_ids=[torch.cuda.current_device()] if torch.distributed.is_initialized() and torch.cuda.is_available() else None)
             model.load_state_dict(torch.load(args.path))
        """),  # noqa: E501
    ("DF303", "a wrapper of several cards stays where the trained model's keys are loaded", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        def evaluate(args, weights):
            model = Net()
            if args.n_gpu > 1:
                model = torch.nn.DataParallel(model, device_ids=args.cards)
            model.load_state_dict(weights)
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        """, """
        @@ -4,4 +4,4 @@
             model = Net()
        -    if args.n_gpu > 1:
        -        model = torch.nn.DataParallel(model, device_ids=args.cards)
        +    if args.n_gpu > 1 or torch.distributed.is_initialized():
        +        model = torch.nn.DataParallel(model, device_ids=[torch.cuda.current_device()] if torch.distributed.is_initialized() and torch.cuda.is_available() else args.cards)
             model.load_state_dict(weights)
        """),  # noqa: E501
    ("DF303", "a wrapper of several cards goes where the script saves keys without it", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        def evaluate(args, data):
            other = Net()
            if args.n_gpu > 1:
                other = torch.nn.DataParallel(other)
            other.load_state_dict(torch.load(args.path, map_location='cpu'), strict=False)
            other.eval()
            for batch in torch.utils.data.DataLoader(data):
                other(batch)
        def save(model, path):
            bare = model.module if hasattr(model, 'module') else model
            torch.save(bare.state_dict(), path)
        def start(args, model):
            if args.head in model.state_dict():
                model.state_dict()[args.head].zero_()
            if args.n_gpu > 1 and not torch.distributed.is_initialized():
                model = torch.nn.DataParallel(model)
            return model
        """, """
        @@ -4,4 +4,2 @@
             other = Net()
        -    if args.n_gpu > 1:
        -        other = torch.nn.DataParallel(other)
             other.load_state_dict(torch.load(args.path, map_location='cpu'), strict=False)
        """),
    ("DF303", "a wrapper for evaluation goes alone from a block of several statements", """
        import torch
        def evaluate(args, model, data):
            model.eval()
            if args.n_gpu > 1:
                print(args.n_gpu)
                model = torch.nn.DataParallel(model)
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def train(args, model, data):
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
        """, """
        @@ -5,3 +5,2 @@
                 print(args.n_gpu)
        -        model = torch.nn.DataParallel(model)
             for batch in torch.utils.data.DataLoader(data):
        """),
    ("DF303", "a wrapper for evaluation leaves the other branch as it is", """
        import torch
        def evaluate(args, model, data):
            model.eval()
            if args.n_gpu > 1:
                model = torch.nn.DataParallel(model)
            else:
                model.to(args.device)
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def train(args, model, data):
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
        """, """
        @@ -4,3 +4,3 @@
             if args.n_gpu > 1:
        -        model = torch.nn.DataParallel(model)
        +        pass
             else:
        """),
    ("DF303", "a lone process keeps its wrapper", """
        def train(args, model):
            dist.init_process_group('gloo')
            model = torch.nn.DataParallel(model)
        """, """
        @@ -1,3 +1,5 @@
        +import torch
         def train(args, model):
             dist.init_process_group('gloo')
        -    model = torch.nn.DataParallel(model)
        +    if not torch.distributed.is_initialized():
        +        model = torch.nn.DataParallel(model)
        """),
    ("DF303", "a test of a wrapper asks for a lone process too", """
        import torch
        def train(args, model):
            torch.distributed.init_process_group('gloo')
            if args.wrap:
                model = torch.nn.DataParallel(model)
            if args.a or args.b:
                model = torch.nn.DataParallel(model)
        """, """
        @@ -3,5 +3,5 @@
             torch.distributed.init_process_group('gloo')
        -    if args.wrap:
        +    if args.wrap and not torch.distributed.is_initialized():
                 model = torch.nn.DataParallel(model)
        -    if args.a or args.b:
        +    if (args.a or args.b) and not torch.distributed.is_initialized():
                 model = torch.nn.DataParallel(model)
        """),
    ("DF303", "a wrapper that is handed on has its rank's card", """
        import torch
        def train(args, model):
            torch.distributed.init_process_group('gloo')
            return fit(torch.nn.DataParallel(model))
        """, """
        @@ -3,2 +3,2 @@
             torch.distributed.init_process_group('gloo')
        -    return fit(torch.nn.DataParallel(model))
        +    return fit(torch.nn.DataParallel(model, device_ids=[torch.cuda.current_device()] if torch.distributed.is_initialized() and torch.cuda.is_available() else None))
        """),  # noqa: E501
    ("DF303", "a forward pass on several cards is on its rank's", """
        import torch
        def forward(net, x, cards):
            torch.distributed.init_process_group('gloo')
            return torch.nn.parallel.data_parallel(net, x, cards)
        """, """
        @@ -3,2 +3,2 @@
             torch.distributed.init_process_group('gloo')
        -    return torch.nn.parallel.data_parallel(net, x, cards)
        +    return torch.nn.parallel.data_parallel(net, x, [torch.cuda.current_device()] if torch.distributed.is_initialized() and torch.cuda.is_available() else cards)
        """),  # noqa: E501
    ("DF303", "a class that adds attributes to the wrapper", """
        import torch
        class Parallel(torch.nn.DataParallel):
            def __getattr__(self, name):
                return getattr(self.module, name)
        def train(args, model):
            torch.distributed.init_process_group('gloo')
            model = Parallel(model)
        """, """
        @@ -6,2 +6,3 @@
             torch.distributed.init_process_group('gloo')
        -    model = Parallel(model)
        +    if not torch.distributed.is_initialized():
        +        model = Parallel(model)
        """),
    ("DF303", "a wrapper among other statements gets a test of its own", """
        import torch
        def train(args, model):
            torch.distributed.init_process_group('gloo')
            if args.wrap:
                print()
                model = torch.nn.DataParallel(model)
        """, """
        @@ -5,2 +5,3 @@
                 print()
        -        model = torch.nn.DataParallel(model)
        +        if not torch.distributed.is_initialized():
        +            model = torch.nn.DataParallel(model)
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text", "diff"), [pytest.param(c, t, d, id=f"{c} {name}") for c, name, t, d in FIX]
)
def test_a_wrapper_of_one_process_makes_room_for_ranks_exactly_like_this(
    code: str, text: str, diff: str
) -> None:
    text = textwrap.dedent(text).lstrip("\n")
    new = fixed(code, text)
    assert changes(text, new) == textwrap.dedent(diff).lstrip("\n")
    assert found(code, new) == []


REPORTED = [
    ("DF201", "imports stand below what makes the model", """
        import torch
        model = torch.nn.DataParallel(net)
        import os
        for batch in torch.utils.data.DataLoader(data):
            model(batch).backward()
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in REPORTED]
)
def test_a_wrapper_is_reported_and_not_touched_where_its_place_is_not_plain(
    code: str, text: str
) -> None:
    (finding,) = found(code, text)
    assert finding.edits == ()


STARTED = """
import torch
import steps
args = parser.parse_args()
steps.train(torch.nn.DataParallel(net))
"""
STEPS = """
import torch
def train(model):
    {}
    for batch in torch.utils.data.DataLoader(data):
        model(batch).backward()
"""


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        pytest.param("n_gpu = 4", [], id="a number"),
        pytest.param("n_gpu = torch.cuda.device_count()", ["n_gpu = 1"], id="a count of cards"),
    ],
)
def test_a_rank_has_one_of_the_cards_that_another_module_counts(
    line: str, counts: list[str]
) -> None:
    unit = Program(module(STARTED), (module(STEPS.format(line)),))
    first, *others = RULES["DF201"].findings(unit)
    assert first.edits
    assert [each.module for each in others] == [unit.modules[1]] * len(counts)
    assert [edit.code.splitlines()[1].strip() for f in others for edit in f.edits[:1]] == counts


@pytest.mark.parametrize(
    ("option", "more", "is_one"),
    [
        pytest.param("type=int, default=2", "", True, id="a number"),
        pytest.param("default='0,1'", "", False, id="a list"),
        pytest.param("type=int, default=2", "args.n_gpu = count()", False, id="set by the script"),
    ],
)
def test_a_rank_takes_one_card_where_an_option_says_how_many(
    option: str, more: str, is_one: bool
) -> None:
    text = f"""
        import argparse
        import torch
        parser = argparse.ArgumentParser()
        parser.add_argument("--n_gpu", {option})
        args = parser.parse_args()
        {more or "pass"}
        loader = torch.utils.data.DataLoader(data, 8 * args.n_gpu)
        if args.n_gpu > 1:
            net = torch.nn.DataParallel(net)
        for batch in loader:
            net(batch).mean().backward()
            optimizer.step()
        """
    repaired = fixed("DF201", text)
    assert ("    args.n_gpu = 1\n" in repaired) is is_one


def test_a_script_of_another_framework_is_no_training_program() -> None:
    text = """
        import paddle
        from paddle.io import DataLoader
        parser.parse_args()
        model = paddle.DataParallel(model)
        for batch in DataLoader(data):
            model(batch).backward()
        """
    assert not Program(module(text)).is_training_program
    assert Program(module(f"import torch\n{textwrap.dedent(text)}")).is_training_program


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("if cuda:\n    net.cuda()", True),
        ("if not cuda:\n    pass\nelse:\n    net.cuda()", True),
        ("if cuda:\n    net.cuda()\nelse:\n    net.train()", False),
        ("if not cuda:\n    pass", False),
    ],
)
def test_a_model_moves_under_a_test_in_either_spelling(text: str, *, moves: bool) -> None:
    parsed = module(text)
    assert is_move(parsed, parsed.tree.body[0], "net") is moves


PREPARED = """\
import torch
from torch.utils.data import DataLoader
class Trainer:
    def __init__(self, net):
        self.net = net
    def prepare(self):
        if torch.cuda.device_count() > 1{asks}:
            self.net = torch.nn.DataParallel(self.net)
    def test(self, batch):
        self.net.eval()
        self.prepare()
        print(self.net(batch))
    def train(self, loader):
        self.prepare()
        optimizer = torch.optim.SGD(self.net.parameters(), 0.1)
        for epoch in range(3):
            for batch in loader:
                self.net.train()
                optimizer.zero_grad()
                self.net(batch).mean().backward()
                optimizer.step()
            self.test(batch)
if __name__ == "__main__":
    Trainer(torch.nn.Linear(2, 2)).train(DataLoader(torch.randn(8, 2), batch_size=2))
"""


@pytest.mark.parametrize(
    ("asks", "more"),
    [
        ("", ""),
        (" and not hasattr(self.net, 'module')", " and not hasattr(self.net, 'module')"),
        (
            " and not isinstance(self.net, torch.nn.DataParallel)",
            " and not hasattr(self.net, 'module')",
        ),
    ],
)
def test_a_wrap_that_is_come_to_again_wraps_once(asks: str, more: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(PREPARED.format(asks=asks))
    (change,) = patch(path).changes
    wrap = "self.net = torch.nn.parallel.DistributedDataParallel(self.net, "
    assert f"        if torch.distributed.is_initialized(){more}:\n" in change.text
    assert wrap in change.text


LIBRARY = """
import torch
{imports}
def main(net, data):
    model = torch.nn.DataParallel(net).cuda()
    {makes}
    for batch in torch.utils.data.DataLoader(data):
        loss = model(batch)
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main(Net(), Data())
"""


@pytest.mark.parametrize(
    ("imports", "makes"),
    [
        ("import deepspeed", "model, *_ = deepspeed.initialize(model=model)"),
        ("from accelerate import Accelerator", "accelerator = Accelerator()"),
        ("from lightning import Fabric", "fabric = Fabric(devices=2)"),
    ],
)
def test_no_group_is_made_where_a_library_makes_one(imports: str, makes: str) -> None:
    (finding,) = found("DF201", LIBRARY.format(imports=imports, makes=makes))
    assert finding.edits == ()
    assert "() makes one, and averages gradients" in finding.because


def test_a_group_is_made_where_an_option_asks_for_a_library() -> None:
    makes = "if args.deepspeed:\n        model, *_ = deepspeed.initialize(model=model)"
    (finding,) = found("DF201", LIBRARY.format(imports="import deepspeed", makes=makes))
    assert finding.edits


COMMAND = """
import argparse
import torch

def train():
    parser = argparse.ArgumentParser()
    args = parser.parse_args()
    model = torch.nn.DataParallel(torch.nn.Linear(3, 3)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in torch.utils.data.DataLoader(Data()):
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
    {end}

def build():
    return 1
"""


@pytest.mark.parametrize(
    ("end", "placed"), [("pass", "pass\n    {}\n"), ("return 0", "{}\n    return 0")]
)
def test_the_command_of_a_package_starts_a_function_that_parses_its_arguments(
    end: str, placed: str, tmp_path: Path
) -> None:
    """As setup.py names it: ``"console_scripts": ["bert = bert.__main__:train"]``."""
    text = COMMAND.format(end=end)
    assert len(found("DF201", text)) == 1
    destroy = (
        "if torch.distributed.is_initialized():\n        torch.distributed.destroy_process_group()"
    )
    path = tmp_path / "__main__.py"
    path.write_text(text)
    (change,) = patch(path).changes
    assert placed.format(destroy) in change.text


PART = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 3)
    def forward(self, x):
        return self.body(x)

class Loss:
    def __init__(self, head, optimizer):
        self.head, self.optimizer = head, optimizer
    def __call__(self, x):
        loss = self.head(x).mean()
        loss.backward()
        self.optimizer.step()

def main(data):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    {above}
    model = nn.DataParallel(model)
    compute = {loss}
    for batch in torch.utils.data.DataLoader(data):
        compute(model(batch))

if __name__ == "__main__":
    main(Data())
"""


@pytest.mark.parametrize(
    ("above", "loss"),
    [
        ("loss = Loss(model.head, optimizer)", "loss"),
        ("pass", "Loss(model.module.head, optimizer)"),
    ],
)
def test_gradients_are_averaged_by_hand_where_a_loss_calls_a_part_of_the_model(
    above: str, loss: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(PART.format(above=above, loss=loss))
    (change,) = patch(path).changes
    assert "        average_gradients(self.optimizer)\n        self.optimizer.step()" in change.text
    assert "DistributedDataParallel(" not in change.text


RETURNED = """\
import torch
from torch.utils.data import DataLoader

def spread(net):
    return torch.nn.DataParallel(net)

def main():
    net = spread(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in DataLoader(examples, shuffle=True):
        optimizer.zero_grad()
        net(batch).mean().backward()
        optimizer.step()
    {behind}

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("behind", "is_kept"),
    [
        ("print(net.module.weight)", True),
        ("print((net.module if hasattr(net, 'module') else net).weight)", False),
        ("print(net)", False),
    ],
)
def test_a_returned_wrapper_is_kept_where_code_reads_the_model_inside(
    behind: str, is_kept: bool, tmp_path: Path
) -> None:
    path = tmp_path / "run.py"
    path.write_text(RETURNED.format(behind=behind))
    (change,) = patch(path).changes
    assert ("    return torch.nn.DataParallel(net, device_ids=[torch" in change.text) is is_kept
