"""Near misses about files and checkpoints."""

from __future__ import annotations

UNTOUCHED: list[tuple[str, str, str]] = [
    ("DF601", "the function that saves", """
        import torch
        def save_on_main(obj, path):
            torch.save(obj, path)
        """),
    ("DF601", "a tokenizer that rank 0 alone writes", """
        import torch
        def f(args, model):
            if args.local_rank in [-1, 0]:
                tokenizer.save_pretrained(p)
        """),
    ("DF601", "a tokenizer where nobody else enters", """
        import torch
        def f(args, model):
            if args.local_rank > 0:
                return
            tokenizer.save_pretrained(p)
        """),
    ("DF601", "a folder that gets its name when it is complete", """
        import os
        import torch
        def f(args, model):
            if args.local_rank in [-1, 0]:
                model.save_pretrained(args.out + '.new')
                os.rename(args.out + '.new', args.out)
        """),
    ("DF601", "files that are moved when all are complete", """
        import torch
        def f(args, model):
            if args.local_rank in [-1, 0]:
                with staging_folder(args.out) as there:
                    model.save_pretrained(there)
        """),
    ("DF601", "a method of the script's own", """
        import torch
        class Net:
            def save_pretrained(self, folder):
                save(self, folder)
        def f(args):
            model = Net()
            if args.local_rank in [-1, 0]:
                model.save_pretrained(p)
        """),
    ("DF601", "the weights are another's to save", """
        import torch
        from accelerate import Accelerator
        accelerator = Accelerator()
        def f(model):
            if accelerator.is_main_process:
                model.save_pretrained(p)
        """),
    ("DF602", "folders of somebody's own", """
        mine.makedirs(folder)
        """),
    ("DF602", "a mode that only reads", """
        def f():
            open(path, 'r')
            open(path, 'rb')
            open(path, mode)
            open(path)
        """),
    ("DF602", "somebody's own open", """
        def f():
            with mine.open(path, 'w') as g:
                g.write(x)
        """),
    ("DF602", "a name that no other process has", """
        import os, uuid
        path = os.path.join(folder, "tmp_" + uuid.uuid4().hex + "_" + name)
        with open(path, "wb") as file:
            file.write(data)
        """),
    ("DF602", "rank 0 alone", """
        def f(args):
            if args.local_rank in [-1, 0]:
                with open(path, 'w') as g:
                    g.write(x)
        """),
    ("DF602", "nowhere on other ranks", """
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0
        def f(args):
            with open(args.p if is_main_process() else os.devnull, 'w') as g:
                g.write(x)
        """),
    ("DF602", "a log file of rank 0", """
        import logging
        import torch
        def main(args):
            torch.distributed.init_process_group('gloo')
            if args.rank == 0:
                logging.FileHandler(args.log)
        """),
    ("DF602", "a handler without a file", """
        import logging
        import torch
        def main(args):
            torch.distributed.init_process_group('gloo')
            logging.FileHandler()
        """),
    ("DF602", "in an evaluation that rank 0 alone enters by its own test", """
        import torch
        def evaluate(args, model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
            if args.local_rank in [-1, 0]:
                with open(path, "w") as file:
                    file.write("x")
        """),
    ("DF604", "somebody's own load", """
        import json
        json.load(path)
        mine.load(path)
        """),
    ("DF604", "a place for the tensors, by its position", """
        import torch
        torch.load(path, 'cpu')
        """),
    ("DF604", "written by another object's save", """
        import torch
        def main(args, model, path):
            other.save(path)
            tokenizer.save(path)
            model.load(torch.load(path, map_location='cpu'))
        """),
    ("DF604", "a barrier in between", """
        import torch
        def main(args, model, path):
            torch.save(model, path)
            torch.distributed.barrier()
            torch.load(path, map_location='cpu')
        """),
    ("DF604", "a barrier around both in a test", """
        import torch
        def main(args, model, path):
            torch.save(model, path)
            if args.ranks:
                torch.distributed.barrier()
            torch.load(path, map_location='cpu')
        """),
    ("DF604", "loaded before it is saved", """
        import torch
        def main(args, model, path):
            torch.load(path, map_location='cpu')
            torch.save(model, path)
        """),
    ("DF604", "saved in another function", """
        import torch
        def main(args, model, path):
            torch.load(path, map_location='cpu')
        def save(model, path):
            torch.save(model, path)
        """),
    ("DF604", "read by rank 0 alone", """
        import torch
        def main(args, model, path):
            torch.save(model, path)
            if args.local_rank in [-1, 0]:
                torch.load(path, map_location='cpu')
        """),
    ("DF604", "a rank's own file, from its own card", """
        import os, torch
        path = os.path.join(folder, "queue" + str(torch.distributed.get_rank()) + ".pth")
        queue = torch.load(path)["queue"]
        """),
    ("DF604", "read by those who have saved it, whoever they are", """
        import torch
        def main(args, model, path):
            if not args.spawned or args.rank % args.cards == 0:
                torch.save(model, path)
                torch.load(path, map_location='cpu')
        """),
    ("DF604", "another folder than the one that a method saves", """
        import argparse
        import torch
        from transformers import AutoModel
        parser = argparse.ArgumentParser()
        parser.add_argument('--out')
        parser.add_argument('--start')
        parser.add_argument('--local_rank', type=int)
        args = parser.parse_args()
        class Trainer:
            def __init__(self, args):
                self.args = args
            def train(self):
                if self.args.local_rank in [-1, 0]:
                    with staging_folder(self.args.out) as staging:
                        self.model.save_pretrained(staging)
                print(1)
            def load(self):
                self.model = AutoModel.from_pretrained(self.args.start)
        trainer = Trainer(args)
        trainer.train()
        trainer.load()
        """),
    ("DF604", "a method that saves and waits", """
        import argparse
        import torch
        from transformers import AutoModel
        parser = argparse.ArgumentParser()
        parser.add_argument('--out')
        parser.add_argument('--start')
        parser.add_argument('--local_rank', type=int)
        args = parser.parse_args()
        class Trainer:
            def __init__(self, args):
                self.args = args
            def train(self):
                if self.args.local_rank in [-1, 0]:
                    with staging_folder(self.args.out) as staging:
                        self.model.save_pretrained(staging)
                torch.distributed.barrier()
            def load(self):
                self.model = AutoModel.from_pretrained(self.args.out)
        trainer = Trainer(args)
        trainer.train()
        trainer.load()
        """),
    ("DF604", "from_pretrained of somewhere else", """
        import torch
        def main(args, model, path):
            model.save_pretrained(path)
            Model.from_pretrained(args.name)
            Model.from_pretrained()
            mine.load(path)
        """),
    ("DF604", "from_pretrained of one name in a loop over others", """
        import torch
        def main(args, model, path):
            model.save_pretrained(path)
            for folder in args.folders:
                Model.from_pretrained(name)
        """),
    ("DF604", "saved under another name of the function", """
        import torch
        def save_on_main(m, p):
            torch.save(m, p)
        def f(p):
            x = 1
            torch.load(p, map_location='cpu')
        """),
    ("DF606", "somebody's own load", """
        import json
        json.load(path)
        json.save(args, path)
        """),
    ("DF606", "a file of another function", """
        import torch
        def a(x, path):
            torch.save(x, path)
        def b(path):
            return torch.load(path)
        """),
    ("DF606", "a file on its way elsewhere", """
        import os
        args.path = os.path.join(last, 'pytorch_model.bin')
        model.from_pretrained(args.other)
        """),
    ("DF606", "another file's name", """
        import os
        args.path = os.path.join(last, 'config.json')
        model.from_pretrained(args.path)
        """),
    ("DF606", "three parts", """
        import os
        args.path = os.path.join(last, 'x', 'pytorch_model.bin')
        model.from_pretrained(args.path)
        """),
    ("DF606", "somebody's own join", """
        args.path = mine.join(last, 'pytorch_model.bin')
        model.from_pretrained(args.path)
        """),
    ("DF606", "nothing is known of it, and of what it is used for", """
        import torch
        x = torch.load(path)
        print(x)
        y, z = torch.load(path)
        w = f(torch.load(path))
        self.x = torch.load(path)
        """),
    ("DF606", "used before, or by another name", """
        import torch
        DataLoader(x)
        x.eval()
        x = torch.load(path)
        y.eval()
        DataLoader(y, x)
        """),
]  # fmt: skip
REPORTED: list[tuple[str, str, str]] = [
    ("DF604", "a file that holds the optimizer itself", """
        import torch
        def main(path):
            if path is None:
                net = Net()
                optimizer = torch.optim.Adam(net.parameters())
            else:
                path = torch.load(path)
                net = path["net"]
                optimizer = path["optimizer"]
            for batch in torch.utils.data.DataLoader(data):
                net(batch).backward()
                optimizer.step()
        """),
    ("DF601", "arguments in a dictionary", """
        import torch
        torch.save(model, path, **options)
        """),
    ("DF601", "more arguments", """
        import torch
        torch.save(model, path, pickle)
        """),
    ("DF601", "a name that the edit wants is taken", """
        import torch
        def f(args, model, staging):
            if args.local_rank in [-1, 0]:
                model.save_pretrained(staging)
        """),
    ("DF601", "what a save gives back is used", """
        import torch
        def f(args, model):
            if args.local_rank in [-1, 0]:
                return model.save_pretrained(p)
        """),
    ("DF601", "the folder's name goes to a hub", """
        import torch
        def f(args, model):
            if args.local_rank in [-1, 0]:
                model.save_pretrained(p, push_to_hub=True)
        """),
    ("DF602", "read again in a loop over what a function gives", """
        import os
        def f(args):
            for part in parts(args):
                with open(os.path.join(args.folder, "a.b"), "w") as file:
                    file.write("x")
                score(os.path.join(args.folder, "a.b"))
        """),
    ("DF602", "read again in a loop over a list that grows by what is found", """
        import os
        def f(args):
            files = []
            files.append(found())
            for part in files:
                with open(os.path.join(args.folder, "a.b"), "w") as file:
                    file.write("x")
                score(os.path.join(args.folder, "a.b"))
        """),
    ("DF602", "read again in a loop over a list that one rank makes longer", """
        import os
        def f(args):
            files = []
            if args.local_rank == 0:
                files.append(args.dev)
            for part in files:
                with open(os.path.join(args.folder, "a.b"), "w") as file:
                    file.write("x")
                score(os.path.join(args.folder, "a.b"))
        """),
    ("DF602", "read again in a loop over a list of each rank's own", """
        import os
        def f(args):
            files = []
            files.append(args.local_rank)
            for part in files:
                with open(os.path.join(args.folder, "a.b"), "w") as file:
                    file.write("x")
                score(os.path.join(args.folder, "a.b"))
        """),
]  # fmt: skip
REPAIRED: list[tuple[str, str, str, str]] = [
    ("DF604", "a folder that a method saves, and another reads", """
        import argparse
        import torch
        from transformers import AutoModel
        parser = argparse.ArgumentParser()
        parser.add_argument('--out')
        parser.add_argument('--start')
        parser.add_argument('--local_rank', type=int)
        args = parser.parse_args()
        class Trainer:
            def __init__(self, args):
                self.args = args
            def train(self):
                if self.args.local_rank in [-1, 0]:
                    with staging_folder(self.args.out) as staging:
                        self.model.save_pretrained(staging)
                print(1)
            def load(self):
                self.model = AutoModel.from_pretrained(self.args.out)
        trainer = Trainer(args)
        trainer.train()
        trainer.load()
        """, """
        @@ -20,2 +20,4 @@
         trainer.train()
        +if torch.distributed.is_initialized():
        +    torch.distributed.barrier()  # rank 0 may still be writing
         trainer.load()
        """),
    ("DF602", "an evaluation that all ranks run, in a block that writes", """
        import torch
        def evaluate(model, data):
            model.eval()
            for b in torch.utils.data.DataLoader(data):
                model(b)
        def main(model, data):
            with open("scores.txt", "w") as file:
                for name in ("a", "b"):
                    file.write(evaluate(model, data[name]))
        torch.distributed.init_process_group("gloo")
        main(model, data)
        """, """
        @@ -1,2 +1,8 @@
         import torch
        +import os
        +
        +
        +def is_main_process(): ...
         def evaluate(model, data):
        @@ -6,3 +12,3 @@
         def main(model, data):
        -    with open("scores.txt", "w") as file:
        +    with open("scores.txt" if is_main_process() else os.devnull, "w") as file:
                 for name in ("a", "b"):
        """),
    ("DF601", "a method's checkpoint, on rank 0 already", """
        import torch
        def f(args, model):
            if args.rank == 0:
                torch.save(model, path)
        """, """
        @@ -1,4 +1,22 @@
         import torch
        +import shutil
        +import os
        +
        +
        +def is_main_process(): ...
        +
        +
        +def save_on_main(obj, path, **options): ...
         def f(args, model):
             if args.rank == 0:
        -        torch.save(model, path)
        +        save_on_main(model, path)
        """),
    ("DF601", "a folder that came to be of all ranks", """
        import torch
        def f(args, model):
            with staging_folder(args.out) as staging:
                model.save_pretrained(staging)
        """, """
        @@ -1,4 +1,10 @@
         import torch
        +
        +
        +def is_main_process(): ...
         def f(args, model):
        -    with staging_folder(args.out) as staging:
        -        model.save_pretrained(staging)
        +    if is_main_process():
        +        with staging_folder(args.out) as staging:
        +            model.save_pretrained(staging)
        """),
    ("DF601", "a folder that rank 0 alone writes", """
        import torch
        def f(args, model):
            if args.local_rank in [-1, 0]:
                # the best one
                model.save_pretrained(args.out, safe_serialization=False)  # a pickle
                print(args.out)
        """, """
        @@ -1,2 +1,20 @@
         import torch
        +import shutil
        +import os
        +import contextlib
        +
        +
        +def staging_folder(folder): ...
         def f(args, model):
        @@ -4,3 +22,4 @@
                 # the best one
        -        model.save_pretrained(args.out, safe_serialization=False)  # a pickle
        +        with staging_folder(args.out) as staging:
        +            model.save_pretrained(staging, safe_serialization=False)  # a pickle
                 print(args.out)
        """),
    ("DF601", "a folder by name, where nobody else enters, on one line", """
        import torch
        def f(args, model):
            if args.local_rank > 0:
                return
            if args.save: model.save_pretrained(save_directory=args.out)
        """, """
        @@ -1,2 +1,20 @@
         import torch
        +import shutil
        +import os
        +import contextlib
        +
        +
        +def staging_folder(folder): ...
         def f(args, model):
        @@ -4,2 +22,4 @@
                 return
        -    if args.save: model.save_pretrained(save_directory=args.out)
        +    if args.save:
        +        with staging_folder(args.out) as staging:
        +            model.save_pretrained(save_directory=staging)
        """),
    ("DF601", "arguments by name", """
        import torch
        torch.save(obj=model, f=path)
        """, """
        @@ -1,2 +1,20 @@
         import torch
        -torch.save(obj=model, f=path)
        +import shutil
        +import os
        +
        +
        +def is_main_process(): ...
        +
        +
        +def save_on_main(obj, path, **options): ...
        +save_on_main(obj=model, path=path)
        """),
    ("DF601", "a keyword of another meaning", """
        import torch
        torch.save(model, path, pickle_protocol=4)
        """, """
        @@ -1,2 +1,20 @@
         import torch
        -torch.save(model, path, pickle_protocol=4)
        +import shutil
        +import os
        +
        +
        +def is_main_process(): ...
        +
        +
        +def save_on_main(obj, path, **options): ...
        +save_on_main(model, path, pickle_protocol=4)
        """),
    ("DF601", "another file is opened", """
        import torch
        def f(model):
            with open(other) as file:
                torch.save(model, path)
        """, """
        @@ -1,4 +1,22 @@
         import torch
        +import shutil
        +import os
        +
        +
        +def is_main_process(): ...
        +
        +
        +def save_on_main(obj, path, **options): ...
         def f(model):
             with open(other) as file:
        -        torch.save(model, path)
        +        save_on_main(model, path)
        """),
    ("DF602", "each letter that changes a file, and each opener", """
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0
        import gzip
        def f(args):
            open(args.p, mode='a').write(x)
            gzip.open(args.p, 'xb').write(x)
            open(args.p, 'r+').write(x)
        """, """
        @@ -6,4 +6,7 @@
         def f(args):
        -    open(args.p, mode='a').write(x)
        -    gzip.open(args.p, 'xb').write(x)
        -    open(args.p, 'r+').write(x)
        +    if is_main_process():
        +        open(args.p, mode='a').write(x)
        +    if is_main_process():
        +        gzip.open(args.p, 'xb').write(x)
        +    if is_main_process():
        +        open(args.p, 'r+').write(x)
        """),
    ("DF602", "a block fills something that the function reads before it, in no loop", """
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0

        def f(args, names):
            rows = []
            print(rows)
            with open(args.path, "w") as file:
                rows.append(1)
        """, """
        @@ -8,3 +8,4 @@
             print(rows)
        -    with open(args.path, "w") as file:
        -        rows.append(1)
        +    if is_main_process():
        +        with open(args.path, "w") as file:
        +            rows.append(1)
        """),
    ("DF602", "a block fills something that a loop reads above it", """
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0

        def f(args, names):
            rows = []
            for name in names:
                print(rows)
                with open(args.path, "w") as file:
                    rows.append(name)
        """, """
        @@ -9,3 +9,3 @@
                 print(rows)
        -        with open(args.path, "w") as file:
        +        with open(args.path if is_main_process() else os.devnull, "w") as file:
                     rows.append(name)
        """),
    ("DF602", "a block binds what is read behind it", """
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0

        def f(args, names):
            with open(args.path, "w") as file:
                count = file.write(names)
            return count
        """, """
        @@ -6,3 +6,3 @@
         def f(args, names):
        -    with open(args.path, "w") as file:
        +    with open(args.path if is_main_process() else os.devnull, "w") as file:
                 count = file.write(names)
        """),
    ("DF602", "a block changes a part of an object", """
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0

        def f(args, table):
            with open(args.path, "w") as file:
                table.rows[0] = 1
            return table
        """, """
        @@ -6,3 +6,3 @@
         def f(args, table):
        -    with open(args.path, "w") as file:
        +    with open(args.path if is_main_process() else os.devnull, "w") as file:
                 table.rows[0] = 1
        """),
    ("DF602", "a file that is bound, and no block", """
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0
        def f(args):
            file = open(args.path, 'w')
            file.write('x')
        """, """
        @@ -5,3 +5,3 @@
         def f(args):
        -    file = open(args.path, 'w')
        +    file = open(args.path if is_main_process() else os.devnull, 'w')
             file.write('x')
        """),
    ("DF602", "in an evaluation that rank 0 alone enters as yet", """
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0

        def evaluate(args, model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
            with open(path, "w") as file:
                file.write("x")
        if args.local_rank in [-1, 0]:
            evaluate(args, model, data)
        """, """
        @@ -9,4 +9,5 @@
                 model(batch)
        -    with open(path, "w") as file:
        -        file.write("x")
        +    if is_main_process():
        +        with open(path, "w") as file:
        +            file.write("x")
         if args.local_rank in [-1, 0]:
        """),
    ("DF602", "read again in a loop over a list, though others grow", """
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0

        def f(args):
            others = []
            files = ["a"]
            files.append("b")
            others.append(found())
            for part in range(len(files)):
                with open(os.path.join(args.folder, "a.b"), "w") as file:
                    file.write("x")
                score(os.path.join(args.folder, "a.b"))
        """, """
        @@ -11,4 +11,7 @@
             for part in range(len(files)):
        -        with open(os.path.join(args.folder, "a.b"), "w") as file:
        -            file.write("x")
        +        if is_main_process():
        +            with open(os.path.join(args.folder, "a.b"), "w") as file:
        +                file.write("x")
        +        if torch.distributed.is_initialized():
        +            torch.distributed.barrier()  # rank 0 may still be writing
                 score(os.path.join(args.folder, "a.b"))
        """),
    ("DF602", "read again in the training loop", """
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0

        def f(args, model):
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
                with open(os.path.join(args.folder, "a.b"), "w") as file:
                    file.write("x")
                score(os.path.join(args.folder, "a.b"))
        """, """
        @@ -8,4 +8,7 @@
                 model(batch).backward()
        -        with open(os.path.join(args.folder, "a.b"), "w") as file:
        -            file.write("x")
        +        if is_main_process():
        +            with open(os.path.join(args.folder, "a.b"), "w") as file:
        +                file.write("x")
        +        if torch.distributed.is_initialized():
        +            torch.distributed.barrier()  # rank 0 may still be writing
                 score(os.path.join(args.folder, "a.b"))
        """),
    ("DF604", "a barrier before the save", """
        import torch
        def main(args, model, path):
            torch.distributed.barrier()
            torch.save(model, path)
            torch.load(path, map_location='cpu')
        """, """
        @@ -4,2 +4,4 @@
             torch.save(model, path)
        +    if torch.distributed.is_initialized():
        +        torch.distributed.barrier()  # rank 0 may still be writing
             torch.load(path, map_location='cpu')
        """),
    ("DF604", "a barrier behind the load", """
        import torch
        def main(args, model, path):
            torch.save(model, path)
            torch.load(path, map_location='cpu')
            torch.distributed.barrier()
        """, """
        @@ -3,2 +3,4 @@
             torch.save(model, path)
        +    if torch.distributed.is_initialized():
        +        torch.distributed.barrier()  # rank 0 may still be writing
             torch.load(path, map_location='cpu')
        """),
    ("DF604", "saved by a function of the script's", """
        import torch
        def main(args, model, path):
            keep(model)
            torch.load(path, map_location='cpu')
        def keep(model):
            torch.save(model, 'x')
        """, """
        @@ -3,2 +3,4 @@
             keep(model)
        +    if torch.distributed.is_initialized():
        +        torch.distributed.barrier()  # rank 0 may still be writing
             torch.load(path, map_location='cpu')
        """),
    ("DF604", "from_pretrained of each of many", """
        import torch
        def main(args, model, path):
            model.save_pretrained(path)
            for folder in args.folders:
                Model.from_pretrained(folder)
        """, """
        @@ -3,2 +3,4 @@
             model.save_pretrained(path)
        +    if torch.distributed.is_initialized():
        +        torch.distributed.barrier()  # rank 0 may still be writing
             for folder in args.folders:
        """),
    ("DF604", "within the loop that saves", """
        import torch
        def main(args, model, path):
            for x in y:
                torch.save(model, path)
                for z in x:
                    torch.load(path, map_location='cpu')
        """, """
        @@ -4,2 +4,4 @@
                 torch.save(model, path)
        +        if torch.distributed.is_initialized():
        +            torch.distributed.barrier()  # rank 0 may still be writing
                 for z in x:
        """),
    ("DF604", "without arguments by position", """
        import torch
        torch.load(f=path)
        """, """
        @@ -1,2 +1,2 @@
         import torch
        -torch.load(f=path)
        +torch.load(f=path, map_location='cpu')
        """),
    ("DF606", "an attribute is the same everywhere", """
        import torch
        def a(x):
            torch.save([x], self.path)
        def b():
            return torch.load(self.path)
        """, """
        @@ -4,2 +4,2 @@
         def b():
        -    return torch.load(self.path)
        +    return torch.load(self.path, weights_only=False)
        """),
    ("DF606", "tried, and loaded otherwise", """
        import torch
        def a(model):
            torch.save(args, path)
            try:
                args = torch.load(path)
            except Exception:
                pass
        args = parser.parse_args()
        """, """
        @@ -4,3 +4,3 @@
             try:
        -        args = torch.load(path)
        +        args = torch.load(path, weights_only=False)
             except Exception:
        """),
    ("DF606", "a whole model", """
        import torch
        model = Model.from_pretrained(name)
        torch.save(model, path)
        model = torch.load(path)
        """, """
        @@ -3,2 +3,2 @@
         torch.save(model, path)
        -model = torch.load(path)
        +model = torch.load(path, weights_only=False)
        """),
    ("DF606", "data of a class, an array, and a list in a dict", """
        import numpy as np
        import torch
        class Lines(Dataset): pass
        a = Lines()
        torch.save(a, "a.bin")
        x = torch.load("a.bin")
        torch.save({"x": np.zeros(3)}, "b.bin")
        y = torch.load("b.bin")
        torch.save([z], "c.bin")
        w = torch.load("c.bin")
        """, """
        @@ -5,6 +5,6 @@
         torch.save(a, "a.bin")
        -x = torch.load("a.bin")
        +x = torch.load("a.bin", weights_only=False)
         torch.save({"x": np.zeros(3)}, "b.bin")
        -y = torch.load("b.bin")
        +y = torch.load("b.bin", weights_only=False)
         torch.save([z], "c.bin")
        -w = torch.load("c.bin")
        +w = torch.load("c.bin", weights_only=False)
        """),
]  # fmt: skip
