"""Names of transformers 2 to 4 that transformers 5 does not have.

Read off the packages: what their modules define or import, and today's do not.
"""

from collections.abc import Iterator

# Image processors, of which classes of the older name were copies.
PROCESSORS = (
    "Beit CLIP ChineseCLIP ConditionalDetr ConvNext DPT DeformableDetr DeiT Detr Donut Flava GLPN "
    "ImageGPT LayoutLMv2 LayoutLMv3 Levit MaskFormer MobileNetV1 MobileNetV2 MobileViT OwlViT "
    "Perceiver PoolFormer Segformer VideoMAE Vilt ViT Yolos"
)
RENAMED = {  # old name, and today's name of the same thing
    **{
        f"transformers.{model}FeatureExtractor": f"transformers.{model}ImageProcessor"
        for model in PROCESSORS.split()
    },
    "transformers.MT5Tokenizer": "transformers.T5Tokenizer",
    "transformers.MT5TokenizerFast": "transformers.T5TokenizerFast",
    "transformers.EvaluationStrategy": "transformers.trainer_utils.IntervalStrategy",
}
LEFT = {  # models, by what their classes are for
    "Config Model PreTrainedModel": (
        "Deta EfficientFormer ErnieM GPTSanJapanese Graphormer Jukebox MCTCT Mega Nat Nezha "
        "OpenLlama QDQBert TrajectoryTransformer Tvlt Van ViTHybrid XLMProphetNet"
    ),
    "ForImageClassification": "EfficientFormer Nat Van ViTHybrid",
    "ForMaskedLM ForSequenceClassification ForTokenClassification ForQuestionAnswering "
    "ForMultipleChoice": "Mega Nezha QDQBert",
    "ForSequenceClassification ForTokenClassification ForQuestionAnswering ForMultipleChoice "
    "Tokenizer": "ErnieM",
    "Config ForClassification Model": "MMBT",
    "ForConditionalGeneration Tokenizer": "GPTSanJapanese XLMProphetNet",
    "Config PreTrainedModel Embedder Reader Retriever Scorer Tokenizer": "Realm",
    "Config ForCausalLM Tokenizer": "Speech2Text2",
    "Tokenizer": "Tapex",
}


def _of(kinds: str, models: str) -> Iterator[str]:
    """The classes of some kinds of each model."""
    return (f"{model}{kind}" for model in models.split() for kind in kinds.split())


OLD_NAMES_BY_ADVICE = {  # advice, and the old names without an equivalent that it is for
    "AutoModelForCausalLM, AutoModelForMaskedLM or AutoModelForSeq2SeqLM, by the checkpoint": (
        "transformers.AutoModelWithLMHead"
    ),
    "MODEL_FOR_CAUSAL_LM_MAPPING and its like": "transformers.MODEL_WITH_LM_HEAD_MAPPING",
    "any name on the hub is taken today": "transformers.ALL_PRETRAINED_MODEL_ARCHIVE_MAP",
    "read the lines and call the tokenizer on them": (
        "transformers.LineByLineTextDataset transformers.TextDataset"
    ),
    "generate(top_k=…, top_p=…)": "transformers.top_k_top_p_filtering",
    "generate(num_beams=…)": (
        "transformers.BeamScorer transformers.BeamSearchScorer transformers.DisjunctiveConstraint "
        "transformers.PhrasalConstraint"
    ),
    "huggingface_hub.hf_hub_download": (
        "transformers.cached_path transformers.file_utils.cached_path "
        "transformers.utils.cached_path"
    ),
    "transformers.utils.is_torch_xla_available": (
        "transformers.is_torch_tpu_available transformers.file_utils.is_torch_tpu_available"
    ),
    "RobertaEmbeddings.create_position_ids_from_input_ids": (
        "transformers.models.roberta.modeling_roberta.create_position_ids_from_input_ids"
    ),
    "torch.utils.data.distributed.DistributedSampler": (
        "transformers.trainer_pt_utils.SequentialDistributedSampler"
    ),
    "copy it from transformers 4 into the script": " ".join(
        f"transformers.{home}{name}"
        for home in ("", "data.", "data.data_collator.")
        for name in [
            "glue_compute_metrics",
            "glue_convert_examples_to_features",
            "glue_output_modes",
            "glue_processors",
            "glue_tasks_num_labels",
            "xnli_processors",
            "xnli_compute_metrics",
            "xnli_output_modes",
            "xnli_tasks_num_labels",
            "squad_convert_examples_to_features",
            "SquadExample",
            "SquadFeatures",
            "SquadV1Processor",
            "SquadV2Processor",
            "SingleSentenceClassificationProcessor",
            "GlueDataset",
            "GlueDataTrainingArguments",
            "SquadDataset",
            "SquadDataTrainingArguments",
            "LineByLineWithRefDataset",
            "LineByLineWithSOPTextDataset",
            "TextDatasetForNextSentencePrediction",
            "DataCollatorForNextSentencePrediction",
            "DataCollatorForSOP",
            "DataCollatorForWholeWordMask",
        ]
    ),
    "drop it: transformers keeps no table of models' names": "transformers.MODEL_NAMES_MAPPING",
    "drop it: there are no mirrors to choose": "transformers.file_utils.PRESET_MIRROR_DICT",
    "AutoModelForImageTextToText, or the class of the model": (
        "transformers.AutoModelForVision2Seq transformers.MODEL_FOR_VISION_2_SEQ_MAPPING"
    ),
    "T5ForConditionalGeneration": "transformers.T5WithLMHeadModel",
    "EncoderDecoderModel": "transformers.PreTrainedEncoderDecoder transformers.Model2Model",
    "the model itself and generate(), or another task of pipeline()": " ".join(
        f"transformers.{name}"
        for name in [
            "Conversation",
            "ConversationalPipeline",
            "QuestionAnsweringPipeline",
            "SummarizationPipeline",
            "Text2TextGenerationPipeline",
            "TranslationPipeline",
            "VisualQuestionAnsweringPipeline",
            "ImageToTextPipeline",
        ]
    ),
    "PreTrainedTokenizerBase": (
        "transformers.SpecialTokensMixin transformers.tokenization_utils.SpecialTokensMixin "
        "transformers.tokenization_utils_base.SpecialTokensMixin"
    ),
    "the model left transformers": " ".join(
        f"transformers.{name}" for kind, names in LEFT.items() for name in _of(kind, names)
    ),
    "TensorFlow left transformers": (
        "transformers.create_optimizer transformers.AdamWeightDecay transformers.WarmUp "
        "transformers.GradientAccumulator transformers.shape_list transformers.KerasMetricCallback "
        "transformers.PushToHubCallback"
    ),
}
