"""Near misses about wrappers of models, and what they wrap."""

from __future__ import annotations

UNTOUCHED: list[tuple[str, str, str]] = [
    ("DF301", "two models are wrapped, one of them by another name", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        wrapped = torch.nn.parallel.DistributedDataParallel(body)
        head = torch.nn.parallel.DistributedDataParallel(head)
        optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()])
        for batch in torch.utils.data.DataLoader(data):
            head(wrapped(batch)).backward()
            optimizer.step()
        """),
    ("DF305", "what is loaded bare comes from the network, and is not what is saved", """
        import torch
        def fetch(net):
            state = torch.hub.load_state_dict_from_url(url)["net"]
            net.load_state_dict(state)

        net = torch.nn.parallel.DistributedDataParallel(net)
        for batch in torch.utils.data.DataLoader(data):
            net(batch).backward()
        torch.save(net.state_dict(), path)
        """),
    ("DF305", "what is saved has the wrapper's keys, of an object that was given it", """
        import torch
        class Trainer:
            def __init__(self, model):
                self.model = model
            def train(self, path):
                for x in loader:
                    self.model(x).mean().backward()
                    optimizer.step()
                torch.save(self.model.state_dict(), path)
        model = torch.nn.parallel.DistributedDataParallel(net)
        Trainer(model).train("m.pt")
        model = torch.nn.parallel.DistributedDataParallel(other)
        model.load_state_dict(torch.load("m.pt"))
        """),
    ("DF305", "what is saved has the wrapper's keys, by another name", """
        import torch
        net = torch.nn.parallel.DistributedDataParallel(net)
        net.load_state_dict(torch.load(path))
        for batch in torch.utils.data.DataLoader(data):
            net(batch).backward()
        whole = net
        torch.save(whole.state_dict(), path)
        """),
    ("DF301", "no training", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        model = torch.nn.DataParallel(model)
        """),
    ("DF301", "no group", """
        import torch
        for b in torch.utils.data.DataLoader(d):
            model(b).backward()
        """),
    ("DF302", "apex's wrapper, which asks for nothing", """
        import torch
        from torch import nn
        from apex.parallel import DistributedDataParallel as DDP

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4)
                self.second = nn.Linear(4, 4)

            def forward(self, x):
                return self.first(x)

        def train(model, batches):
            model = DDP(model)
            for batch in batches:
                model(batch).sum().backward()

        train(Model(), [torch.ones(2, 4)] * 3)
        """),
    ("DF302", "unused parameters looked for by position", """
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4)
                self.second = nn.Linear(4, 4)

            def forward(self, x):
                return self.first(x)

        def train(model, batches):
            model = DDP(model, None, None, 0, True, None, 25, True)
            for batch in batches:
                model(batch).sum().backward()

        train(Model(), [torch.ones(2, 4)] * 3)
        """),
    ("DF302", "a layer without parameters", """
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4)
                self.second = nn.Dropout(0.1)

            def forward(self, x):
                return self.first(x)

        def train(model, batches):
            model = DDP(model)
            for batch in batches:
                model(batch).sum().backward()

        train(Model(), [torch.ones(2, 4)] * 3)
        """),
    ("DF302", "a layer of somebody else's", """
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4)
                self.second = mine.Linear(4, 4)

            def forward(self, x):
                return self.first(x)

        def train(model, batches):
            model = DDP(model)
            for batch in batches:
                model(batch).sum().backward()

        train(Model(), [torch.ones(2, 4)] * 3)
        """),
    ("DF302", "a layer of another object", """
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4)
                other.second = nn.Linear(4, 4)

            def forward(self, x):
                return self.first(x)

        def train(model, batches):
            model = DDP(model)
            for batch in batches:
                model(batch).sum().backward()

        train(Model(), [torch.ones(2, 4)] * 3)
        """),
    ("DF302", "a layer that another method makes", """
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4)

            def grow(self):
                self.second = nn.Linear(4, 4)

            def forward(self, x):
                return self.first(x)

        def train(model, batches):
            model = DDP(model)
            for batch in batches:
                model(batch).sum().backward()

        train(Model(), [torch.ones(2, 4)] * 3)
        """),
    ("DF302", "a class of which nobody makes an object", """
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4)
                self.second = nn.Linear(4, 4)

            def forward(self, x):
                return self.first(x)

        def train(model, batches):
            model = DDP(model)
            for batch in batches:
                model(batch).sum().backward()

        train(model, [torch.ones(2, 4)] * 3)
        """),
    ("DF302", "no wrapper", """
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4)
                self.second = nn.Linear(4, 4)

            def forward(self, x):
                return self.first(x)

        def train(model, batches):
            for batch in batches:
                model(batch).sum().backward()

        train(Model(), [torch.ones(2, 4)] * 3)
        """),
    ("DF302", "a pooler is taken off, or read by its name", """
        import torch
        from transformers import RobertaModel

        encoder = RobertaModel.from_pretrained(name, add_pooling_layer=False)
        model = torch.nn.parallel.DistributedDataParallel(encoder, device_ids=[args.local_rank])
        for ids in batches:
            model(ids)[0].sum().backward()
        """),
    ("DF302", "a pooler read by its name", """
        import torch
        from transformers import RobertaModel

        encoder = RobertaModel.from_pretrained(name)
        model = torch.nn.parallel.DistributedDataParallel(encoder, device_ids=[args.local_rank])
        for ids in batches:
            model(ids).pooler_output.sum().backward()
        """),
    ("DF302", "a model of the same name and the script's own", """
        import torch
        from mine import RobertaModel

        encoder = RobertaModel.from_pretrained(name)
        model = torch.nn.parallel.DistributedDataParallel(encoder, device_ids=[args.local_rank])
        for ids in batches:
            model(ids)[0].sum().backward()
        """),
    ("DF305", "isinstance of something else, and with one argument more", """
        import torch
        def train(args, model):
            if args.local_rank != -1:
                model = torch.nn.parallel.DistributedDataParallel(model)
            for batch in loader:
                model(batch).backward()
            isinstance(model, Mine)
            isinstance(model, torch.nn.DataParallel, x)
            isinstance(x)
        """),
    ("DF305", "a count of cards that chooses something else", """
        import torch
        def train(args, model):
            if args.local_rank != -1:
                model = torch.nn.parallel.DistributedDataParallel(model)
            for batch in loader:
                model(batch).backward()
            m = a if args.n_gpu > 1 else b
        """),
    ("DF305", "a count of cards that chooses among two models", """
        import torch
        def train(args, model):
            if args.local_rank != -1:
                model = torch.nn.parallel.DistributedDataParallel(model)
            for batch in loader:
                model(batch).backward()
            m = (a.module, b.module) if args.n_gpu > 1 else b
        """),
    ("DF305", "another test than the count of cards", """
        import torch
        def train(args, model):
            if args.local_rank != -1:
                model = torch.nn.parallel.DistributedDataParallel(model)
            for batch in loader:
                model(batch).backward()
            m = model.module if args.wrapped > 1 else model
        """),
    ("DF305", "a name made anew before it is asked", """
        import torch
        def train(args, model):
            if args.local_rank != -1:
                model = torch.nn.parallel.DistributedDataParallel(model)
            for batch in loader:
                model(batch).backward()
            model = make()
            model.generate(x)
        """),
    ("DF305", "asked before it is wrapped", """
        import torch
        def train(args, model):
            model.generate(x)
            if args.local_rank != -1:
                model = torch.nn.parallel.DistributedDataParallel(model)
            for batch in loader:
                model(batch).backward()
            pass
        """),
    ("DF305", "a wrapper that is handed on at once", """
        import torch
        def train(args, model):
            model = fit(torch.nn.parallel.DistributedDataParallel(model))
            for b in loader:
                model(b).backward()
            model.generate(x)
        """),
    ("DF305", "a checkpoint that another function makes, in a dictionary", """
        import torch
        model = torch.nn.parallel.DistributedDataParallel(model)
        model.load_state_dict(torch.load(path)['net'])
        def keep(path):
            state = {'net': model.state_dict(), 'epoch': epoch}
            save_on_main(state, path)
        for batch in loader:
            model(batch).backward()
        """),
    ("DF308", "another wrapper, and one of nothing", """
        import torch
        def train(model):
            for p in model.encoder.parameters(): p.requires_grad = False
            model = mine.DistributedDataParallel(model)
            torch.nn.parallel.DistributedDataParallel()
            pass
            for epoch in range(4):
                for p in model.encoder.parameters(): p.requires_grad = True
                for batch in loader:
                    model(batch).backward()
                    optimizer.step()
        """),
    ("DF308", "an input's, data's and a gradient's", """
        import torch
        def train(model):
            x.requires_grad = False
            model = torch.nn.parallel.DistributedDataParallel(model)
            pass
            for epoch in range(4):
                x.data.requires_grad = True
                x.grad.requires_grad = True
                x.requires_grad = True
                y[0].requires_grad = True
                for batch in loader:
                    model(batch).backward()
                    optimizer.step()
        """),
    ("DF308", "thawed before training", """
        import torch
        def train(model):
            for p in model.encoder.parameters(): p.requires_grad = False
            model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
            for p in model.encoder.parameters(): p.requires_grad = True
            for epoch in range(4):
                pass
                for batch in loader:
                    model(batch).backward()
                    optimizer.step()
        """),
    ("DF308", "thawed around the wrapper already", """
        import torch
        def train(model):
            for p in model.encoder.parameters(): p.requires_grad = False
            frozen = [p for p in model.parameters() if not p.requires_grad]
            for p in frozen:
                p.requires_grad_(True)
            model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
            for p in frozen:
                p.requires_grad_(False)
            for epoch in range(4):
                for p in model.encoder.parameters(): p.requires_grad = True
                for batch in loader:
                    model(batch).backward()
                    optimizer.step()
        """),
]  # fmt: skip
REPORTED: list[tuple[str, str, str]] = [
    ("DF301", "lines under a test of the cards need the wrapper", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        net = Net().to(device)
        if len(opt.gpus) > 1:
            if not torch.distributed.is_initialized():
                net = torch.nn.DataParallel(net)
            optimizer = torch.optim.SGD(net.module.parameters())
        for batch in torch.utils.data.DataLoader(data):
            net(batch).backward()
            optimizer.step()
        """),
    ("DF301", "one of two models is wrapped for ranks", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        head = torch.nn.parallel.DistributedDataParallel(head)
        optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()])
        for batch in torch.utils.data.DataLoader(data):
            head(body(batch)).backward()
            optimizer.step()
        """),
    ("DF301", "a second model that trains without", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        one, two = One().cuda(), Two().cuda()
        optimizer = torch.optim.Adam(list(one.parameters()) + list(two.parameters()))
        if not torch.distributed.is_initialized():
            one = torch.nn.DataParallel(one)
        for b in torch.utils.data.DataLoader(data):
            two(one(b)).backward()
        """),
    ("DF301", "a part of the model alone", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        model = Net().cuda()
        if not torch.distributed.is_initialized():
            model.encoder = torch.nn.DataParallel(model.encoder)
        for b in torch.utils.data.DataLoader(data):
            model(b).backward()
        """),
    ("DF301", "another model is moved", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def train(args, data):
            other.to(args.device)
            if args.n_gpu > 1:
                model = torch.nn.DataParallel(model)
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        """),
    ("DF301", "ranks wrap it too", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def train(args, model, data):
            model.to(args.device)
            if args.wrap:
                model = torch.nn.DataParallel(model)
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        """),
    ("DF301", "without a test", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def train(args, model, data):
            model.to(args.device)
            model = torch.nn.DataParallel(model)
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        """),
    ("DF301", "the same model twice", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def train(args, model, data):
            model.to(args.device)
            if args.n_gpu > 1:
                model = torch.nn.DataParallel(model)
            if args.n_gpu > 2:
                model = torch.nn.DataParallel(model)
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        """),
    ("DF301", "apex's wrapper, tried with something else", """
        import torch
        try:
            from apex.parallel import DistributedDataParallel as DDP
            have = True
        except ImportError:
            have = False
        torch.distributed.init_process_group('gloo')
        model = DDP(model)
        for b in torch.utils.data.DataLoader(data):
            model(b).backward()
        """),
    ("DF301", "apex's wrapper, tried with an else", """
        import torch
        try:
            from apex.parallel import DistributedDataParallel as DDP
        except ImportError:
            have = False
        else:
            have = True
        torch.distributed.init_process_group('gloo')
        model = DDP(model)
        for b in torch.utils.data.DataLoader(data):
            model(b).backward()
        """),
    ("DF301", "apex's wrapper among other names", """
        import torch
        from apex.parallel import DistributedDataParallel, convert_syncbn_model
        torch.distributed.init_process_group('gloo')
        model = DistributedDataParallel(model)
        for b in torch.utils.data.DataLoader(data):
            model(b).backward()
        """),
    ("DF301", "apex's wrapper with a second argument", """
        import torch
        from apex.parallel import DistributedDataParallel
        torch.distributed.init_process_group('gloo')
        model = DistributedDataParallel(model, 100)
        for b in torch.utils.data.DataLoader(data):
            model(b).backward()
        """),
    ("DF301", "a wrapper that nothing reaches, another model's, and one of an evaluation", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def evaluate(model, data):
            model = torch.nn.DataParallel(model)
            model.eval()
            for b in torch.utils.data.DataLoader(data):
                model(b)
        def train(model, data):
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        evaluate(model, d)
        train(model, d)
        """),
    ("DF301", "apex's wrapper of another package", """
        import torch
        from mine.parallel import convert
        from apex.parallel import DistributedDataParallel
        import apex.parallel
        torch.distributed.init_process_group('gloo')
        model = apex.parallel.DistributedDataParallel(model)
        for b in torch.utils.data.DataLoader(data):
            model(b).backward()
        """),
    ("DF301", "apex's wrapper, tried to the end", """
        import torch
        try:
            from apex.parallel import DistributedDataParallel as DDP
        finally:
            done()
        torch.distributed.init_process_group('gloo')
        model = DDP(model)
        for b in torch.utils.data.DataLoader(data):
            model(b).backward()
        """),
]  # fmt: skip
REPAIRED: list[tuple[str, str, str, str]] = [
    ("DF202", "a wrapper in a function that has no arguments of the command line", """
        import torch
        def wrap(model):
            return torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
        def main():
            args = parser.parse_args()
            args.device = torch.device("cpu")
            torch.distributed.init_process_group('gloo', timeout=t)
            torch.distributed.destroy_process_group()
        main()
        """, """
        @@ -2,3 +2,3 @@
         def wrap(model):
        -    return torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
        +    return torch.nn.parallel.DistributedDataParallel(model, device_ids=[0] if torch.cuda.is_available() else None)
         def main():
        """),  # noqa: E501
    ("DF301", "moved by one caller of two", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def train(args, model, data):
            if args.n_gpu > 1:
                model = torch.nn.DataParallel(model)
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        def main(args, model):
            train(args, other, data)
            model.to(args.device)
            train(args, model, data)
        """, """
        @@ -6,2 +6,6 @@
                 model = torch.nn.DataParallel(model)
        +    if torch.distributed.is_initialized():
        +        if torch.cuda.is_available():
        +            model.cuda()
        +        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             for b in torch.utils.data.DataLoader(data):
        """),  # noqa: E501
    ("DF301", "moved behind it", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def train(args, data):
            model = Model()
            if args.n_gpu > 1:
                model = torch.nn.DataParallel(model)
            model.to(args.device)
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        """, """
        @@ -8,2 +8,4 @@
             model.to(args.device)
        +    if torch.distributed.is_initialized():
        +        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             for b in torch.utils.data.DataLoader(data):
        """),  # noqa: E501
    ("DF301", "more is done for several cards", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def train(args, model, data):
            model.to(args.device)
            if args.n_gpu > 1:
                model = torch.nn.DataParallel(model)
                args.size *= args.n_gpu
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        """, """
        @@ -8,2 +8,4 @@
                 args.size *= args.n_gpu
        +    if torch.distributed.is_initialized():
        +        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             for b in torch.utils.data.DataLoader(data):
        """),  # noqa: E501
    ("DF301", "moved by nobody who calls", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def train(args, model, data):
            print(model)
            other = Model().to(args.device)
            model = net.half()
            if args.n_gpu > 1:
                model = torch.nn.DataParallel(model)
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        """, """
        @@ -9,2 +9,6 @@
                 model = torch.nn.DataParallel(model)
        +    if torch.distributed.is_initialized():
        +        if torch.cuda.is_available():
        +            model.cuda()
        +        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             for b in torch.utils.data.DataLoader(data):
        """),  # noqa: E501
    ("DF301", "moved by hand over itself for ever", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def train(args, model, data):
            if args.n_gpu > 1:
                model = torch.nn.DataParallel(model)
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
            train(args, model, data)
        """, """
        @@ -6,2 +6,6 @@
                 model = torch.nn.DataParallel(model)
        +    if torch.distributed.is_initialized():
        +        if torch.cuda.is_available():
        +            model.cuda()
        +        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             for b in torch.utils.data.DataLoader(data):
        """),  # noqa: E501
    ("DF301", "moved where it is made", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def train(args, data):
            model = Model().to(args.device)
            if not torch.distributed.is_initialized():
                model = torch.nn.DataParallel(model)
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        """, """
        @@ -7,2 +7,4 @@
                 model = torch.nn.DataParallel(model)
        +    if torch.distributed.is_initialized():
        +        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             for b in torch.utils.data.DataLoader(data):
        """),  # noqa: E501
    ("DF301", "moved by every caller", """
        import torch
        def train(args, model, data):
            if args.n_gpu > 1:
                model = torch.nn.DataParallel(model)
            for b in torch.utils.data.DataLoader(data):
                model(b).backward()
        def main():
            args = parser.parse_args()
            if args.local_rank != -1:
                torch.distributed.init_process_group('gloo')
            model.to(args.device)
            train(args, model, data)
        """, """
        @@ -4,2 +4,4 @@
                 model = torch.nn.DataParallel(model)
        +    if args.local_rank != -1:
        +        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.local_rank] if torch.cuda.is_available() else None, find_unused_parameters=True)
             for b in torch.utils.data.DataLoader(data):
        """),  # noqa: E501
    ("DF301", "apex's wrapper under its own name", """
        import torch
        from apex.parallel import DistributedDataParallel
        torch.distributed.init_process_group('gloo')
        model = DistributedDataParallel(model)
        for b in torch.utils.data.DataLoader(data):
            model(b).backward()
        """, """
        @@ -1,5 +1,5 @@
         import torch
        -from apex.parallel import DistributedDataParallel
        +from torch.nn.parallel import DistributedDataParallel
         torch.distributed.init_process_group('gloo')
        -model = DistributedDataParallel(model)
        +model = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
         for b in torch.utils.data.DataLoader(data):
        """),  # noqa: E501
    ("DF301", "apex's wrapper under another name, tried", """
        import torch
        try:
            from apex.parallel import DistributedDataParallel as DDP
        except ImportError:
            raise ImportError("Please install apex")
        torch.distributed.init_process_group('gloo')
        model = DDP(model)
        for b in torch.utils.data.DataLoader(data):
            model(b).backward()
        """, """
        @@ -1,8 +1,5 @@
         import torch
        -try:
        -    from apex.parallel import DistributedDataParallel as DDP
        -except ImportError:
        -    raise ImportError("Please install apex")
        +from torch.nn.parallel import DistributedDataParallel as DDP
         torch.distributed.init_process_group('gloo')
        -model = DDP(model)
        +model = DDP(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
         for b in torch.utils.data.DataLoader(data):
        """),  # noqa: E501
    ("DF302", "seven arguments by position do not look for them", """
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4)
                self.second = nn.Linear(4, 4)

            def forward(self, x):
                return self.first(x)

        def train(model, batches):
            model = DDP(model, None, None, 0, True, None, 25)
            for batch in batches:
                model(batch).sum().backward()

        train(Model(), [torch.ones(2, 4)] * 3)
        """, """
        @@ -14,3 +14,3 @@
         def train(model, batches):
        -    model = DDP(model, None, None, 0, True, None, 25)
        +    model = DDP(model, None, None, 0, True, None, 25, find_unused_parameters=True)
             for batch in batches:
        """),
    ("DF305", "asked between two wrappers' lives", """
        import torch
        def train(args, model):
            if args.local_rank != -1:
                model = torch.nn.parallel.DistributedDataParallel(model)
            for batch in loader:
                model(batch).backward()
            model.generate(x)
            model = make()
            model.generate(x)
        """, """
        @@ -6,3 +6,3 @@
                 model(batch).backward()
        -    model.generate(x)
        +    getattr(model, 'module', model).generate(x)
             model = make()
        """),
    ("DF308", "a layer by its number", """
        import torch
        def train(model):
            model.layers[3].requires_grad_(False)
            model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
            pass
            for epoch in range(4):
                model.layers[3].requires_grad_(True)
                for batch in loader:
                    model(batch).backward()
                    optimizer.step()
        """, """
        @@ -3,3 +3,8 @@
             model.layers[3].requires_grad_(False)
        +    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
        +    for parameter in frozen:
        +        parameter.requires_grad_(True)  # else ranks would never synchronise them
             model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        +    for parameter in frozen:
        +        parameter.requires_grad_(False)
             pass
        """),
    ("DF308", "thawed around the wrapper, but for some other thing", """
        import torch
        def train(model):
            for p in model.encoder.parameters(): p.requires_grad = False
            for p in frozen:
                print(p)
            model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
            pass
            for epoch in range(4):
                for p in model.encoder.parameters(): p.requires_grad = True
                for batch in loader:
                    model(batch).backward()
                    optimizer.step()
        """, """
        @@ -5,3 +5,8 @@
                 print(p)
        +    frozen_parameters = [parameter for parameter in model.parameters() if not parameter.requires_grad]
        +    for parameter in frozen_parameters:
        +        parameter.requires_grad_(True)  # else ranks would never synchronise them
             model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        +    for parameter in frozen_parameters:
        +        parameter.requires_grad_(False)
             pass
        """),  # noqa: E501
    ("DF308", "a function of a function that training calls", """
        import torch
        def train(model):
            for p in model.encoder.parameters(): p.requires_grad = False
            model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
            pass
            for epoch in range(4):
                first(model)
                for batch in loader:
                    model(batch).backward()
                    optimizer.step()
        def first(model):
            second(model)
        def second(model):
            for p in model.encoder.parameters(): p.requires_grad = True
        """, """
        @@ -3,3 +3,8 @@
             for p in model.encoder.parameters(): p.requires_grad = False
        +    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
        +    for parameter in frozen:
        +        parameter.requires_grad_(True)  # else ranks would never synchronise them
             model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        +    for parameter in frozen:
        +        parameter.requires_grad_(False)
             pass
        """),
    ("DF308", "epochs around the call of the function that trains", """
        import torch
        def steps(model):
            for batch in loader:
                model(batch).backward()
        def main(model):
            for p in model.encoder.parameters(): p.requires_grad = False
            model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
            for epoch in range(9):
                for p in model.encoder.parameters(): p.requires_grad = True
                steps(model)
        """, """
        @@ -6,3 +6,8 @@
             for p in model.encoder.parameters(): p.requires_grad = False
        +    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
        +    for parameter in frozen:
        +        parameter.requires_grad_(True)  # else ranks would never synchronise them
             model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        +    for parameter in frozen:
        +        parameter.requires_grad_(False)
             for epoch in range(9):
        """),
]  # fmt: skip
